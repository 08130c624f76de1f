package redisclient

import (
	"testing"

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
