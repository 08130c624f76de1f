package rest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseBase reads any base address of an outside service: what passes is http or https with a host, what does not is never shown.
func FuzzParseBase(f *testing.F) {
	for _, seed := range []string{"http://127.0.0.1:8000", "https://u:p@h/v1/", "file:///etc/passwd", "http://", "//h", "http://h\x00", "http://[::1", "HTTP://h?x#y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, base string) {
		u, err := ParseBase(base)
		if err != nil {
			require.Equal(t, ErrBaseURL.Error(), err.Error())
			return
		}
		require.Contains(t, []string{"http", "https"}, u.Scheme)
		require.NotEmpty(t, u.Host)
		again, err := ParseBase(u.String())
		require.NoError(t, err, u.String())
		require.Equal(t, u.Host, again.Host)
	})
}
