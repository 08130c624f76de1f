package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Arguments by which this program is what Enclose starts.
const encloseArg, enclosedArg = "enclose", "enclosed"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == encloseArg:
		fmt.Println(Enclose([]string{os.Args[0], enclosedArg}))
		os.Exit(1)
	case len(os.Args) == 2 && os.Args[1] == enclosedArg:
		os.Exit(tryDoors())
	}
	os.Exit(m.Run())
}

// tryDoors says which doors are open to a process that Enclose started.
func tryDoors() int {
	abi, err := enclosed()
	fmt.Println("abi", abi > 0, err)
	for _, door := range []struct {
		name string
		open func() error
	}{
		{"itself", func() error { return read("/proc/self/exe") }},
		{"a file", func() error { return read("/etc/passwd") }},
		{"a folder", func() error { return read("/") }},
		{"a new file", func() error { return os.WriteFile("/tmp/millweir-enclosed", nil, 0o600) }},
		{"a program", func() error { return exec.Command("/bin/true").Run() }},
	} {
		fmt.Println(door.name, door.open() == nil)
	}
	return 0
}

func read(name string) error {
	f, err := os.Open(name)
	if err == nil {
		err = f.Close()
	}
	return err
}

func TestAnEnclosedProcessReadsNothingButItself(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), self, encloseArg).Output()
	require.NoError(t, err, "%s", out)
	require.Equal(t, []string{"abi true <nil>", "itself true", "a file false", "a folder false", "a new file false", "a program false"},
		strings.Split(strings.TrimSpace(string(out)), "\n"))
}

func TestWhoIsNotEnclosedIsToldSo(t *testing.T) {
	t.Parallel()
	abi, err := enclosed()
	require.Zero(t, abi)
	require.ErrorContains(t, err, "not started anew")
}

func TestRulesNameWhatIsMapped(t *testing.T) {
	t.Parallel()
	files, err := mapped()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	require.Contains(t, files, self)
	abi, err := llsys.LandlockGetABIVersion()
	require.NoError(t, err)
	fd, err := rules(abi)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	require.ErrorIs(t, allow(fd, "/nowhere"), unix.ENOENT)
}

func TestRightsGrowWithTheKernel(t *testing.T) {
	t.Parallel()
	last := llsys.RulesetAttr{}
	for abi := 1; abi <= 7; abi++ {
		r := rights(abi)
		require.Equal(t, last.HandledAccessFS, r.HandledAccessFS&last.HandledAccessFS)
		require.Equal(t, abi >= 4, r.HandledAccessNet != 0)
		require.Equal(t, abi >= 6, r.Scoped != 0)
		last = r
	}
}
