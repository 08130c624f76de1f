package extract

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	registerHostile()
	if IsChild(os.Args) {
		os.Exit(ChildMain())
	}
	os.Exit(m.Run())
}
