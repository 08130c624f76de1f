package wiring

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"10.5.28-MariaDB": "10.6", "10.6.0-MariaDB": "", "10.11.6-MariaDB-0+deb12u1": "", "11.4.2-MariaDB": "", "9.9": "10.6", "": "",
	} {
		require.Equal(t, want, TooOld("MariaDB", version), version)
	}
	require.Equal(t, "8.0.17", TooOld("MySQL", "8.0.16"))
	require.Empty(t, TooOld("MySQL", "8.0.36-0ubuntu0.22.04.1"))
	require.Equal(t, "6.2", TooOld("Redis", "6.0.20"))
	require.Empty(t, TooOld("Redis", "7.0.15"))
	require.Empty(t, TooOld("SQLite", "3.0"))
}

// A server that cannot be asked is not said to be too old: whether it can be used is another check's matter.
func TestAServerThatIsTooOldIsNamed(t *testing.T) {
	t.Parallel()
	check := func(version string, err error) error {
		return CheckVersion(t.Context(), func(context.Context) (string, string, error) { return "Redis", version, err })
	}
	require.EqualError(t, check("6.0.16", nil), "Redis 6.0.16 is too old: upgrade it to 6.2 or later")
	require.NoError(t, check("6.2.0", nil))
	require.NoError(t, check("", nil))
	require.NoError(t, check("6.0.16", errors.New("NOPERM")))
}
