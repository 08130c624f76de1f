package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What does not fit the schema of its base comes in by no door: a form, a new version, an archive, a workflow, the command line.
func TestNoDoorTakesWhatMisfitsItsBase(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "Basalt at an address.")
	}))
	t.Cleanup(site.Close)
	_, c := startDev(t, "INGEST_URL_NETWORKS=127.0.0.0/8")
	server := "MILLWEIR_SERVER=" + c.url
	c.json(http.MethodPost, bases, `{"name":"rocks","metadataSchema":{"fields":{"kind":{"type":"string","required":true,"values":["basalt","gneiss"]}},"additional":false}}`).
		into(t, http.StatusCreated, nil)
	first := c.ingested("a.txt", []byte("Gneiss is banded."), "knowledgeBase", "rocks", "metadata", `{"kind":"gneiss"}`)
	count := func() int {
		var list page[task]
		c.get(tasks+"?limit=100&knowledgeBase=rocks").into(t, http.StatusOK, &list)
		var documentsOf page[task]
		c.get(documents+"?knowledgeBase=rocks").into(t, http.StatusOK, &documentsOf)
		return 100*len(documentsOf.Items) + len(list.Items)
	}
	require.Equal(t, 101, count())
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	f, err := z.Create("inner.txt")
	require.NoError(t, err)
	_, err = io.WriteString(f, "Basalt is dark.")
	require.NoError(t, err)
	require.NoError(t, z.Close())
	path := filepath.Join(t.TempDir(), "b.txt")
	require.NoError(t, os.WriteFile(path, []byte("Basalt is hard."), 0o600))
	put := func(metadata string) answer {
		body, kind := form(t, "a.txt", []byte("Gneiss is layered."), "metadata", metadata)
		return c.do(http.MethodPut, documents+"/"+first.DocumentID, body, "Content-Type", kind)
	}
	apply := func(workflow, payload, metadata string) (got applied) {
		if metadata != "" {
			payload += `,"metadata":` + metadata
		}
		c.json(http.MethodPost, applyPath, `{"workflowId":"`+workflow+`","chatId":"1","payload":{"knowledgeBase":"rocks",`+payload+`},"waitTimeoutSeconds":60}`).into(t, http.StatusOK, &got)
		return got
	}
	doors := map[string]string{"ingest.text": `"text":"Basalt by itself."`, "ingest.url": `"url":"` + site.URL + `"`}

	const asked = `; the knowledge base's metadata schema asks for a string out of "basalt", "gneiss"`
	for said, says := range map[string]string{``: "metadata.kind is missing" + asked, `{"kind":"chalk"}`: `metadata.kind is "chalk"` + asked, `{"kind":7}`: `metadata.kind is 7, a number` + asked} {
		for name, content := range map[string][]byte{"b.txt": []byte("Basalt is hard."), "all.zip": packed.Bytes()} {
			fields := []string{"knowledgeBase", "rocks"}
			if said != "" {
				fields = append(fields, "metadata", said)
			}
			require.Equal(t, says, c.send(name, content, fields...).refused(t, http.StatusUnprocessableEntity, "INVALID_FIELD").Message)
		}
		if said == "" {
			continue
		}
		require.Equal(t, says, put(said).refused(t, http.StatusUnprocessableEntity, "INVALID_FIELD").Message)
	}
	require.Equal(t, "metadata.kind is missing"+asked, put(`{}`).refused(t, http.StatusUnprocessableEntity, "INVALID_FIELD").Message)
	for workflow, payload := range doors {
		got := apply(workflow, payload, `{"kind":"chalk"}`)
		require.Equal(t, []string{"DEAD", "INVALID_PAYLOAD"}, []string{got.Data.Status, got.Data.Error.Code})
		require.Contains(t, got.Data.Error.Message, `metadata.kind is "chalk"`+asked)
	}
	code, out := run(t, "millweir", []string{server}, "submit", path, "--kb", "rocks", "--meta", "kind=chalk")
	require.Equal(t, 5, code, out)
	require.Contains(t, out, `metadata.kind is "chalk"`+asked)
	code, out = run(t, "millweir", []string{server}, "search", "basalt", "--kb", "rocks", "--meta", "colour=red")
	require.Equal(t, 5, code, out)
	require.Contains(t, out, "metadata.colour is no field of the knowledge base's metadata schema, which has kind; leave it out")
	require.Equal(t, 101, count(), "nothing of all that is there")

	// The same doors take what fits.
	for workflow, payload := range doors {
		require.Equal(t, "SUCCEEDED", apply(workflow, payload, `{"kind":"basalt"}`).Data.Status)
	}
	code, out = run(t, "millweir", []string{server}, "submit", path, "--kb", "rocks", "--meta", "kind=basalt", "--wait")
	require.Equal(t, 0, code, out)
	unpacked := c.ended(c.accepted("all.zip", packed.Bytes(), "knowledgeBase", "rocks", "metadata", `{"kind":"basalt"}`).TaskID)
	require.Equal(t, "SUCCEEDED", unpacked.Status, "%+v", unpacked)
	put(`{"kind":"basalt"}`).into(t, http.StatusAccepted, nil)
	var list page[struct{ Metadata json.RawMessage }]
	c.get(documents+"?knowledgeBase=rocks").into(t, http.StatusOK, &list)
	require.Len(t, list.Items, 5)
	c.ready()
}
