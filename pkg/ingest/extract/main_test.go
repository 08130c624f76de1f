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
	if len(os.Args) == 2 && os.Args[1] == parentArg {
		os.Exit(orphanMaker())
	}
	os.Exit(m.Run())
}
