package auth_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/millweir/millweir/pkg/auth"
)

func TestUserIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"": "it is empty", "a\xff": "UTF-8", "a\ufffd": "UTF-8", strings.Repeat("\u00fc", 191): "191 characters",
		"a\n": "U+000A", "a\u0085b": "U+0085", "a\u2028b": "U+2028", "a\u202eb": "U+202E", "a\u2066b": "U+2066", "a\u200fb": "U+200F", "a\u061cb": "U+061C",
		"a ": "white space", " a": "white space", "\u00a0a": "white space", "a\u3000": "white space", "a\u200b": "white space", "\ufeffa": "white space",
		"u\u0308": "NFC", "\u212b": "NFC",
	} {
		err := auth.CheckUserID(id)
		require.ErrorIs(t, err, auth.ErrInvalidUserID, "%+q", id)
		require.ErrorContains(t, err, want, "%+q", id)
	}
	for _, id := range []string{
		"a", "Anna", "anna b", "anna@example.org", "auth0|5f7c", "\u00fc", "\u7528\u6237", "stra\u00dfe", "a\u200cb", "\U0001f433", "local", strings.Repeat("\u00fc", auth.MaxUserID),
	} {
		require.NoError(t, auth.CheckUserID(id), "%+q", id)
	}
}

// Two ids that are let in and that padding, trimming or normalizing would make one are one.
func TestUserIDsHaveOneForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringOfN(rapid.RuneFrom([]rune(" aA\t\u00a0\u0301\u0308u\u00fc\u200b\u202e\u212b\u00c5\u00df")), 0, 6, -1).Draw(t, "id")
		if auth.CheckUserID(id) == nil {
			require.Equal(t, id, norm.NFC.String(strings.TrimSpace(id)))
		}
	})
}
