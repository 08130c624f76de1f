package redisq

import (
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// FuzzURL reads any address, and addresses whose password is known, however badly it is written: it is never shown.
func FuzzURL(f *testing.F) {
	f.Add("redis://h:1/2", "u", "", "h:1/2")
	f.Add("redis-sentinel://a:1,b:2/main?sentinel_password=x", "", "/x", "h")
	f.Add("redis-cluster://a:1,b:2/0", "", "", "a:1,b:2/1")
	f.Add("rediss://u:p%40@[::1]?ca_file=/a@b&db=3#m", "u", "?a=", "h")
	f.Add("://@:?#,", "a:b", "@h/1", "")
	f.Fuzz(func(t *testing.T, raw, user, middle, tail string) {
		_ = Redact(raw)
		if a, err := parseURL(raw); err == nil {
			require.NotEmpty(t, a.hosts)
			require.GreaterOrEqual(t, a.db, 0)
		}
		const secret = "hunter2canary"
		for _, scheme := range []string{"redis://", "rediss://", "redis-sentinel://", "rediss-cluster://"} {
			address := scheme + user + ":" + secret + middle + "@" + tail
			require.NotContains(t, Redact(address), secret)
			if _, err := parseURL(address); err != nil {
				require.NotContains(t, err.Error(), secret)
			}
		}
	})
}

// FuzzEntry reads any entry of the stream: it is an envelope, or it is kept as it came with the reason.
func FuzzEntry(f *testing.F) {
	f.Add("1-0", "taskId", "t", "payload", `{"a":1}`)
	f.Add("", "task_id", "t", "retry", `{"attempt":-1}`)
	f.Add("x", "taskId", "\xff", "context", `{`)
	f.Fuzz(func(t *testing.T, id, n1, v1, n2, v2 string) {
		fields := map[string]string{n1: v1, n2: v2}
		d := decode(plain{}, rueidis.XRangeEntry{ID: id, FieldValues: fields})
		require.Equal(t, id, d.ID)
		if d.Err != nil {
			require.Nil(t, d.Envelope)
			require.Equal(t, fields, d.Raw)
			require.Less(t, len(d.Err.Error()), 1000+4*(len(id)+len(n1)+len(n2)), "a reason names fields, not what they hold")
			return
		}
		require.NotEmpty(t, d.Envelope.GetTaskId())
		if parsed, ok := parseID(id); ok {
			require.NotContains(t, id, " ")
			require.False(t, strings.HasPrefix(id, "-"), parsed)
		}
	})
}
