package gateway

import (
	"archive/zip"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const previewPath = "/api/knowledge/preview"

// An archive is a task that takes its files in; it is no version of a document, and nobody looks at it.
func TestAnArchiveIsATask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	archive := func(name string) part {
		var text bytes.Buffer
		z := zip.NewWriter(&text)
		f, err := z.Create("a.txt")
		require.NoError(t, err)
		_, err = f.Write([]byte("One is here."))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return file(name, text.String())
	}
	w := b.upload(ada, asyncPath, []string{"Idempotency-Key", "k"}, archive("a.zip"), file("b.txt", "x"), part{"metadata", "", `{"lang":"en"}`})
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	got := decode[struct{ Items []wire.AcceptedTask }](t, w).Items
	require.Len(t, got, 2)
	require.Nil(t, got[0].Document)
	require.NotNil(t, got[1].Document)
	row, err := b.parts.Store.Get(t.Context(), taskstate.System(), got[0].TaskID)
	require.NoError(t, err)
	require.Equal(t, "ingest.archive", row.WorkflowID)
	require.Equal(t, 1, b.held(), "its file waits for a worker")
	twice := decode[struct{ Items []wire.AcceptedTask }](t, b.upload(ada, asyncPath, []string{"Idempotency-Key", "k"}, archive("a.zip"), file("b.txt", "x"), part{"metadata", "", `{"lang":"en"}`})).Items
	require.Equal(t, got[0].TaskID, twice[0].TaskID)
	require.True(t, twice[0].Replayed)
	require.Equal(t, 1, b.held())
	b.refused(b.upload(ada, asyncPath, nil, archive("a.zip"), part{"knowledgeBase", "", "nobody has it"}), http.StatusNotFound, web.CodeBaseNotFound)
	b.refused(b.upload(ada, "PUT "+"/api/knowledge/documents/"+got[1].Document.DocumentID, nil, archive("a.zip")), http.StatusUnsupportedMediaType, "UNSUPPORTED_TYPE")
	b.refused(b.upload(ada, previewPath, nil, archive("a.zip")), http.StatusUnsupportedMediaType, "UNSUPPORTED_TYPE")
	b.refused(b.upload(ada, asyncPath, nil, archive("a.jar")), http.StatusUnsupportedMediaType, "UNSUPPORTED_TYPE")
	require.Equal(t, 1, b.held())
}

// A preview is a task of its user; what is wrong with it is told before there is one, and leaves no file.
func TestAPreviewIsATask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mine := string(b.accept(ada, "report.txt", "x").DocumentID)
	foreign := string(b.accept(bob, "report.txt", "x").DocumentID)
	files := func() int { return b.count(t, "stored_file") }
	before := files()
	ask := func(body string, headers ...string) wire.PreviewReply {
		w := b.send(ada, http.MethodPost, previewPath+"?waitSeconds=0", body, headers...)
		require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
		got := decode[wire.PreviewReply](t, w)
		require.Equal(t, workflowsOf+got.TaskID, w.Header().Get("Location"))
		require.Equal(t, taskstate.StatusQueued, got.Status)
		require.Nil(t, got.Preview)
		return got
	}
	body := `{"documentId":"` + mine + `","limit":3,"chunking":{"strategy":"rows"}}`
	got := ask(body, "Idempotency-Key", "k")
	require.Equal(t, got.TaskID, ask(body, "Idempotency-Key", "k").TaskID)
	row, err := b.parts.Store.Get(t.Context(), taskstate.System(), got.TaskID)
	require.NoError(t, err)
	require.Equal(t, "preview.document", row.WorkflowID)
	require.JSONEq(t, `{"payload":{"documentId":"`+mine+`","limit":3,"chunking":{"strategy":"rows"}}}`, string(row.Payload))
	for body, code := range map[string]string{
		`{}`: web.CodeInvalidField, `{"documentId":"x"}`: web.CodeInvalidField, `{"documentId":"` + mine + `","limit":101}`: web.CodeInvalidField,
		`{"documentId":"` + mine + `","chunking":{"size":1}}`: web.CodeInvalidField,
	} {
		b.refused(b.send(ada, http.MethodPost, previewPath, body), http.StatusUnprocessableEntity, code)
	}
	b.refused(b.send(ada, http.MethodPost, previewPath, `{"documentId":"`+foreign+`"}`), http.StatusNotFound, web.CodeDocumentNotFound)

	send := func(parts ...part) (*http.Request, int) {
		body, kind := form(t, parts...)
		return b.request(ada, http.MethodPost, previewPath+"?waitSeconds=0", body, "Content-Type", kind), b.held()
	}
	r, had := send(part{"chunking", "", `{"strategy":"parents"}`}, part{"limit", "", "5"}, file("a.txt", "One is here."))
	w := b.do(r)
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	require.Equal(t, had+1, b.held(), "it waits for a worker")
	for _, c := range []struct {
		part
		status int
		code   string
	}{
		{part{"chunking", "", `{"strategy":"magic"}`}, http.StatusUnprocessableEntity, web.CodeInvalidField},
		{part{"chunking", "", `{"strategies":1}`}, http.StatusBadRequest, web.CodeBadJSON},
		{part{"limit", "", "many"}, http.StatusUnprocessableEntity, web.CodeInvalidField},
		{part{"limit", "", "-1"}, http.StatusUnprocessableEntity, web.CodeInvalidField},
		{part{"title", "", "t"}, http.StatusBadRequest, web.CodeUnknownParameter},
		{part{"knowledgeBase", "", "nobody has it"}, http.StatusNotFound, web.CodeBaseNotFound},
	} {
		r, had := send(file("a.txt", "One is here."), c.part)
		b.refused(b.do(r), c.status, c.code)
		require.Equal(t, had, b.held(), "%s: no file is left", c.body)
	}
	r, _ = send(file("empty.txt", ""))
	b.refused(b.do(r), http.StatusUnprocessableEntity, "EMPTY_FILE")
	r, _ = send(part{"limit", "", "1"})
	b.refused(b.do(r), http.StatusBadRequest, web.CodeFileRequired)
	require.Equal(t, before, files())
	b.refused(b.send(ada, http.MethodPost, previewPath+"?chunking="+strings.Repeat("x", 3), body), http.StatusBadRequest, web.CodeUnknownParameter)
}
