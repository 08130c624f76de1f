package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

const entry = `{"schema_version":"1.3.1","id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z","published":"2026-01-01T00:00:00Z"}`

// write makes a file with its folders below dir.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestEverySortOfDatabaseIsKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file, want string // want: below the folder
	}{
		"index":    {"index/modules.json", ""},
		"entries":  {"GO-2026-0001.json", ""},
		"checkout": {"data/osv/GO-2026-0001.json", "/data/osv"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, tt.file, entry)
			address, what, err := find(t.Context(), dir, t.TempDir())
			require.NoError(t, err)
			require.Equal(t, "file://"+dir+tt.want, address)
			require.Contains(t, what, dir)
		})
	}
	_, _, err := find(t.Context(), t.TempDir(), t.TempDir())
	require.ErrorContains(t, err, "neither an index")
}

func TestEntriesComeOutOfABareClone(t *testing.T) {
	t.Parallel()
	source, bare, work := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "work")
	write(t, source, "data/osv/GO-2026-0001.json", entry)
	for _, args := range [][]string{
		{"-C", source, "init", "-q"},
		{"-C", source, "add", "."},
		{"-C", source, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "Add an entry"},
		{"clone", "-q", "--bare", source, bare},
	} {
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	address, what, err := find(t.Context(), bare, work)
	require.NoError(t, err)
	require.Equal(t, "file://"+work, address)
	require.Regexp(t, `golang/vulndb of \d{4}-\d\d-\d\d`, what)
	require.FileExists(t, filepath.Join(work, "GO-2026-0001.json"))
}

// What govulncheck says decides, and a program that cannot run is not a clean bill.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	db := t.TempDir()
	write(t, db, "GO-2026-0001.json", entry)
	for name, tt := range map[string]struct{ program, want string }{
		"nothing":  {"true", ""},
		"found":    {script(t, "exit 3"), "our code reaches known vulnerabilities"},
		"broken":   {script(t, "exit 1"), "exit status 1"},
		"not here": {filepath.Join(db, "no-such-program"), "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run{govulncheck: tt.program, db: db, packages: []string{"x"}, out: &out}.look(t.Context())
			if tt.want == "" {
				require.NoError(t, err)
				require.Contains(t, out.String(), "OK: no known vulnerability is reached")
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, out.String(), "OK")
		})
	}
}

func script(t *testing.T, line string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "program", "#!/bin/sh\n"+line+"\n")
	path := filepath.Join(dir, "program")
	require.NoError(t, os.Chmod(path, 0o700))
	return path
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
