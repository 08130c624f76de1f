//go:build !mutant

package mutant_test

import (
	"testing"

	"github.com/millweir/millweir/pkg/taskstate/mutant"
)

func TestNoBugWithoutTheTag(t *testing.T) {
	t.Setenv("MILLWEIR_MUTANT", "m1")
	if mutant.Is("m1") {
		t.Fatal("an ordinary build has a seeded bug")
	}
}
