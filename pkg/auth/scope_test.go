package auth_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
)

// What a scope has beside itself, and which do not stand together.
func TestScopes(t *testing.T) {
	t.Parallel()
	all := []auth.Scope{auth.ScopeRead, auth.ScopeWrite, auth.ScopeSearch, auth.ScopeUpload, auth.ScopeStatus}
	for names, want := range map[string][]auth.Scope{
		"read": {auth.ScopeRead, auth.ScopeSearch, auth.ScopeStatus}, "write": {auth.ScopeWrite, auth.ScopeUpload},
		"search": {auth.ScopeSearch}, "upload": {auth.ScopeUpload}, "status": {auth.ScopeStatus},
	} {
		s, err := auth.ParseScopes(names)
		require.NoError(t, err)
		require.Equal(t, names, s.String())
		for _, scope := range all {
			require.Equal(t, slices.Contains(want, scope), s.Has(scope), "%s has %s", names, scope)
		}
		if names != "status" {
			_, err = auth.ParseScopes(names, "status")
			require.ErrorIs(t, err, auth.ErrInvalidInput)
			require.ErrorContains(t, err, "stands alone")
		}
	}
	for _, name := range []string{"", "Status", "status,read", "x"} {
		_, err := auth.ParseScopes(name)
		require.ErrorIs(t, err, auth.ErrInvalidInput, name)
	}
}
