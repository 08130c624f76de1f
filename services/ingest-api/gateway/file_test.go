package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

func filePath(document string) string { return "/api/knowledge/documents/" + document + "/file" }

// What was uploaded comes back byte for byte, whole and in parts, of each version that is kept.
func TestTheFileOfADocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const text = "the first bytes"
	document := string(b.accept(ada, "ä report.txt", text).DocumentID)
	sum := sha256.Sum256([]byte(text))
	tag := `"` + hex.EncodeToString(sum[:]) + `"`

	w := b.get(ada, filePath(document))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, text, w.Body.String())
	require.Equal(t, tag, w.Header().Get("ETag"))
	require.Equal(t, "private, no-cache", w.Header().Get("Cache-Control"))
	require.Equal(t, "attachment; filename*=utf-8''%C3%A4%20report.txt", w.Header().Get("Content-Disposition"))
	kind, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, "text/plain", kind)

	w = b.get(ada, filePath(document), "Range", "bytes=4-8")
	require.Equal(t, http.StatusPartialContent, w.Code)
	require.Equal(t, "first", w.Body.String())
	require.Equal(t, "bytes 4-8/15", w.Header().Get("Content-Range"))
	require.Equal(t, text, b.get(ada, filePath(document), "Range", "bytes=4-8", "If-Range", `"another"`).Body.String(), "the part is of other bytes")
	w = b.get(ada, filePath(document), "Range", "bytes=99-")
	require.Equal(t, "bytes */15", w.Header().Get("Content-Range"))
	b.refused(w, http.StatusRequestedRangeNotSatisfiable, web.CodeRange)
	w = b.get(ada, filePath(document), "If-None-Match", tag)
	require.Equal(t, http.StatusNotModified, w.Code)
	require.Empty(t, w.Body.String())

	require.Equal(t, http.StatusAccepted, b.upload(ada, "PUT /api/knowledge/documents/"+document, nil, file("b.txt", "other bytes")).Code)
	require.Equal(t, "other bytes", b.get(ada, filePath(document)).Body.String(), "none is visible: the newest")
	require.Equal(t, text, b.get(ada, filePath(document)+"?version=1").Body.String())
	b.refused(b.get(ada, filePath(document)+"?version=3"), http.StatusNotFound, web.CodeVersionNotFound)
	b.refused(b.get(ada, filePath(document)+"?version=0"), http.StatusBadRequest, web.CodeInvalidParameter)
	b.refused(b.get(bob, filePath(document)), http.StatusNotFound, web.CodeDocumentNotFound)
	require.Equal(t, "other bytes", b.get(operator, filePath(document)).Body.String())

	_, err = b.parts.Store.DB().ExecContext(t.Context(), "DELETE FROM stored_file WHERE original_name <> 'b.txt'")
	require.NoError(t, err)
	b.refused(b.get(ada, filePath(document)+"?version=1"), http.StatusConflict, web.CodeVersionGone)
}

// Only a PDF is shown by a browser: a page or a picture with scripts in it would be one of ours.
func TestOnlyPDFIsShown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, text := range map[string]string{
		"a.html": "<!doctype html><script>alert(1)</script><p>text", "a.xml": `<?xml version="1.0"?><a>text</a>`, "a.md": "# text", "a.txt": "<script>alert(1)</script>",
	} {
		w := b.get(ada, filePath(string(b.accept(ada, name, text).DocumentID)))
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", name, w.Body)
		require.True(t, strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment"), "%s: %s", name, w.Header())
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		require.NotContains(t, w.Header().Get("Content-Security-Policy"), "self")
	}
	w := b.get(ada, filePath(string(b.accept(ada, "a.pdf", "%PDF-1.4\n%%EOF").DocumentID)))
	require.Equal(t, "application/pdf", w.Header().Get("Content-Type"))
	require.Equal(t, "inline; filename=a.pdf", w.Header().Get("Content-Disposition"))
	require.NotContains(t, w.Header().Get("Content-Security-Policy"), "script-src")
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
}

// A stored file that is lost or has another size is a fault of ours, and is written to the log with its document.
func TestALostFileIsOurFault(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	document := string(b.accept(ada, "a.txt", "text").DocumentID)
	var id string
	require.NoError(t, b.parts.Store.DB().QueryRowContext(t.Context(), "SELECT id FROM stored_file").Scan(&id))
	path := filepath.Join(b.dir, "uploads", id)
	require.NoError(t, os.WriteFile(path, []byte("more than text"), 0o600))
	b.refused(b.get(ada, filePath(document)), http.StatusInternalServerError, web.CodeInternal)
	require.Contains(t, b.log.String(), "14 bytes are there, 4 were uploaded")
	require.NoError(t, os.Remove(path))
	b.refused(b.get(ada, filePath(document)), http.StatusInternalServerError, web.CodeInternal)
	require.Contains(t, b.log.String(), "of version 1 of document "+document)
}
