package ask

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/streammq/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func() error { return goleak.Find() })
}

func TestAskAndAnswer(t *testing.T) {
	t.Parallel()
	options, err := rueidis.ParseURL(redistest.RedisURL(t))
	require.NoError(t, err)
	options.DisableCache = true
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	q, err := streammq.New(client, streammq.NewDefaultConfig())
	require.NoError(t, err)
	_, err = q.CreateTopic(t.Context(), streammq.Topic{Name: Topic, Partitions: 4})
	require.NoError(t, err)

	responder, err := NewResponder(q, map[string]int{"tea": 120})
	require.NoError(t, err)
	requester, err := q.NewRequester(streammq.NewDefaultRequesterConfig("shop"), nil)
	require.NoError(t, err)
	for _, run := range []func(context.Context) error{responder.Run, requester.Run} {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-ended)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cents, err := Ask(ctx, requester, "tea", 3)
	require.NoError(t, err)
	require.Equal(t, 360, cents)
	_, err = Ask(ctx, requester, "gold", 1)
	require.ErrorIs(t, err, streammq.ErrRemote)
	require.ErrorContains(t, err, `no price of "gold"`)
}
