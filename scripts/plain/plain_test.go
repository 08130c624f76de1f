package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

// Not parallel: it works in a folder and an environment of its own.
func TestTestsAreFoundByTheirTagAndRunWithoutTheDetector(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GOWORK", "off")
	t.Setenv("GOFLAGS", "")
	for name, text := range map[string]string{
		"go.mod":           "module example.org/p\n\ngo 1.26\n",
		"tag_test.go":      "//go:build !raced\n\npackage p\n\nimport \"testing\"\n\nfunc TestTagged(t *testing.T) { if raced { t.Fatal(\"with the detector\") } }\n\nfunc helper() {}\n",
		"other_test.go":    "package p\n\nimport \"testing\"\n\nconst raced = false\n\nfunc TestOther(t *testing.T) { t.Fatal(\"not asked for\") }\n",
		"external_test.go": "//go:build !raced\n\npackage p_test\n\nimport \"testing\"\n\nfunc TestExternal(*testing.T) {}\n",
		"q/q_test.go":      "package q\n\nimport \"testing\"\n\nfunc TestNone(t *testing.T) { t.Fatal(\"not asked for\") }\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	var out, errs bytes.Buffer
	require.Equal(t, 0, run(t.Context(), []string{"-list", "./..."}, &out, &errs), errs.String())
	require.Equal(t, "example.org/p TestTagged TestExternal\n", out.String())
	require.Equal(t, 0, run(t.Context(), []string{"./..."}, &out, &errs), "%s%s", out.String(), errs.String())

	require.NoError(t, os.WriteFile("other_test.go", []byte("package p\n\nconst raced = true\n"), 0o600))
	require.Equal(t, 1, run(t.Context(), []string{"./..."}, &out, &errs))
	require.Contains(t, out.String(), "with the detector")
	require.Equal(t, 1, run(t.Context(), []string{"./q"}, &out, &errs))
	require.Contains(t, errs.String(), "no test file has the constraint")
	require.Equal(t, 2, run(t.Context(), nil, &out, &errs))
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
