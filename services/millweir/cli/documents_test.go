package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/millweir/cli"
)

// The file of a document comes as it was uploaded; one that is damaged, cut off or refused leaves no file.
func TestDocumentsFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const text = "the first\x00 bytes"
	sum := sha256.Sum256([]byte(text))
	sent, tag, strange := text, hex.EncodeToString(sum[:]), false
	b.mux.HandleFunc("GET /api/knowledge/documents/d1/file", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "version=2" && r.URL.RawQuery != "" {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"`+tag+`"`)
		if !strange {
			w.Header().Set("Content-Disposition", `attachment; filename="a.txt"`)
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		}
		_, _ = w.Write([]byte(sent))
	})
	require.Zero(t, b.run(t.Context(), "documents", "file", "d1"), b.err.String())
	require.Equal(t, text, b.out.String())
	dir := t.TempDir()
	to := filepath.Join(dir, "a.txt")
	get := func(version string) int {
		return b.run(t.Context(), "documents", "file", "d1", "--version", version, "--to", to)
	}
	require.Zero(t, get("2"), b.err.String())
	there := func() string {
		got, err := os.ReadFile(to)
		require.NoError(t, err)
		all, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, all, 1)
		return string(got)
	}
	require.Equal(t, text, there())
	require.Empty(t, b.out.String())

	sent = "the worst\x00 bytes"
	require.NotZero(t, get("2"))
	require.Contains(t, b.err.String(), "the stored file is damaged; upload it again")
	require.Equal(t, text, there(), "what was there stays")
	sent = "the fir"
	require.NotZero(t, get("2"))
	require.Contains(t, b.err.String(), "copy the file: unexpected EOF")
	sent, strange = "<title>wait</title>", true
	require.Equal(t, cli.ExitServer, get("2"), "a page of a proxy is no file")
	require.Contains(t, b.err.String(), "HTTP_200: wait (not from a millweir gateway)")
	require.NotZero(t, get("3"))
	require.Equal(t, text, there())
	require.NotZero(t, b.run(t.Context(), "documents", "file", "d1", "--to", filepath.Join(dir, "none", "a.txt")))
	require.Contains(t, b.err.String(), "none")
}
