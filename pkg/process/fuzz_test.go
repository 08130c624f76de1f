package process

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzEnvFile reads any file of settings: an error names a line, and never shows a value.
func FuzzEnvFile(f *testing.F) {
	f.Add("A=1\nexport B='x y'\n# c\nC=\"a\\n\\\"b\" # d\nD=http://h/#f", "")
	f.Add("A='", "\n'x\"")
	f.Add("\ufeffA=1\r\nB", "=")
	f.Fuzz(func(t *testing.T, text, value string) {
		vars, err := parseEnv(strings.NewReader(text))
		if err == nil {
			for _, v := range vars {
				require.True(t, validName.MatchString(v[0]))
			}
		}
		const secret = "hunter2canary"
		if _, err := parseEnv(strings.NewReader("DATABASE_URL=" + value + secret + value + "\n")); err != nil {
			require.NotContains(t, err.Error(), secret)
		}
		vars, err = parseEnv(strings.NewReader("A='" + secret + "'\nB=" + secret))
		require.NoError(t, err)
		require.Equal(t, [][2]string{{"A", secret}, {"B", secret}}, vars)
	})
}

// FuzzSecretAddress prints addresses with a password in every way there is: it is never among what comes out.
func FuzzSecretAddress(f *testing.F) {
	f.Add("user", "", "host:3306/d", uint8(0))
	f.Add("u", "/x?y#z", "h", uint8(1))
	f.Add("u%40", ":x@y", "tcp(h)/d", uint8(5))
	f.Add("", "@", "127.0.0.1:1", uint8(2))
	schemes := []string{"mysql://", "postgres://", "redis://", "rediss://", "http://", ""}
	f.Fuzz(func(t *testing.T, user, middle, host string, which uint8) {
		// What an address cannot hold at all is no address: blanks, quotes and controls.
		for _, part := range []string{user, middle, host} {
			if strings.ContainsFunc(part, func(r rune) bool { return r <= ' ' || r >= 0x7F || strings.ContainsRune("\"'`<>\\", r) }) {
				return
			}
		}
		if strings.ContainsAny(user, ":/?#@(") || host == "" {
			return // then the password is not where it is thought to be
		}
		scheme := schemes[int(which)%len(schemes)]
		if scheme == "" {
			host = "tcp(" + host + ")/d"
			if user == "" {
				return
			}
		}
		const secret = "hunter2canary"
		address := scheme + user + ":" + secret + middle + "@" + host
		d := NewDSN(address)
		text, err := json.Marshal(map[string]any{"dsn": d})
		require.NoError(t, err)
		for _, shown := range []string{d.String(), fmt.Sprintf("%v %+v %#v %s %q %x", d, d, d, d, d, d), string(text), d.LogValue().String()} {
			require.NotContains(t, shown, secret, address)
		}
		require.Equal(t, address, d.Reveal())
	})
}
