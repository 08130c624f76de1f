package auth

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecretsHaveTheirForm(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 200 {
		s := NewSecret()
		require.Regexp(t, regexp.MustCompile(`^mw_live_[0-9A-Za-z]{36}$`), s)
		require.NoError(t, CheckShape(s))
		require.False(t, seen[s])
		seen[s] = true
	}
}

func TestChecksumIsFixed(t *testing.T) {
	t.Parallel()
	// Scanners of others compute this too: it may never change. (The value is zlib.crc32's in base62.)
	head := KeyPrefix + strings.Repeat("a", secretLen)
	require.Equal(t, "18aXF7", checksum(head))
	require.Len(t, digest(head), 64)
}

func TestTypingErrorsAreFoundWithoutALookUp(t *testing.T) {
	t.Parallel()
	s := NewSecret()
	for i := range s {
		other := byte('x')
		if s[i] == other {
			other = 'y'
		}
		require.ErrorIs(t, CheckShape(s[:i]+string(other)+s[i+1:]), ErrInvalidKey, "position %d", i)
	}
	for _, bad := range []string{"", s[1:], s + "a", strings.ToUpper(s), strings.Replace(s, s[20:21], "-", 1), strings.Repeat("x", 1<<16)} {
		require.ErrorIs(t, CheckShape(bad), ErrInvalidKey)
	}
}

func FuzzCheckShape(f *testing.F) {
	f.Add(NewSecret())
	f.Add("mw_live_")
	f.Fuzz(func(t *testing.T, text string) {
		if CheckShape(text) == nil {
			require.Equal(t, checksum(text[:keyLen-sumLen]), text[keyLen-sumLen:])
		}
	})
}
