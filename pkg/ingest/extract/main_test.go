package extract

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if IsChild(os.Args) {
		os.Exit(ChildMain())
	}
	os.Exit(m.Run())
}
