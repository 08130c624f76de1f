package installed

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMissingProgramNamesThePackage(t *testing.T) {
	t.Parallel()
	_, err := Program("no-such-program", "some-package")
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, "apt-get install some-package")
}
