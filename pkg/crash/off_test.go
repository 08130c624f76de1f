//go:build !lab

package crash_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/crash"
)

func TestPointsAreNothingWithoutTheTag(t *testing.T) {
	t.Setenv("MILLWEIR_CRASH", "t.here:1:kill")
	crash.Point("t.here")
	require.NoError(t, crash.Fault("t.here"))
	require.Zero(t, testing.AllocsPerRun(10, func() { crash.Point("t.here") }))
}
