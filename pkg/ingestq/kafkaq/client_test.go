package kafkaq

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millweir/millweir/pkg/ingestq"
)

// A broker that has just started loads the groups' offsets for a moment: the caller waits for them and is told no failure.
func TestACoordinatorThatLoadsIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []int16{kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code} {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		require.NoError(t, err)
		t.Cleanup(cluster.Close)
		var asked atomic.Int64
		cluster.ControlKey(kmsg.OffsetFetch.Int16(), func(request kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if asked.Add(1) > 5 {
				return nil, nil, false
			}
			response := request.ResponseKind().(*kmsg.OffsetFetchResponse)
			response.ErrorCode = code
			for _, g := range request.(*kmsg.OffsetFetchRequest).Groups {
				one := kmsg.NewOffsetFetchResponseGroup()
				one.Group, one.ErrorCode = g.Group, code
				response.Groups = append(response.Groups, one)
			}
			return response, nil, true
		})
		b := newBench(t, strings.Join(cluster.ListenAddrs(), ","), 2)
		stats, err := b.client.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, ingestq.Stats{}, stats)
		require.Greater(t, asked.Load(), int64(5))
	}
}
