package redisq

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// FuzzEntry reads any entry of the stream: it is an envelope, or it is kept as it came with the reason.
func FuzzEntry(f *testing.F) {
	f.Add("1-0", "taskId", "t", "payload", `{"a":1}`)
	f.Add("", "task_id", "t", "retry", `{"attempt":-1}`)
	f.Add("x", "taskId", "\xff", "context", `{`)
	f.Fuzz(func(t *testing.T, id, n1, v1, n2, v2 string) {
		fields := map[string]string{n1: v1, n2: v2}
		d := decode(plain{}, id, fields)
		require.Equal(t, id, d.ID)
		if d.Err != nil {
			require.Nil(t, d.Envelope())
			require.Equal(t, fields, d.Raw)
			require.Less(t, len(d.Err.Error()), 1000+4*(len(id)+len(n1)+len(n2)), "a reason names fields, not what they hold")
			return
		}
		require.NotEmpty(t, d.TaskID)
		if parsed, ok := stream.ParseID(id); ok {
			require.NotContains(t, id, " ")
			require.False(t, strings.HasPrefix(id, "-"), parsed)
		}
	})
}
