package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
)

// letter is an e-mail with attachments (name, content, …).
func letter(text string, files ...string) []byte {
	s := "From: Ann <a@example.org>\r\nTo: b@example.org\r\nSubject: " + text + "\r\nMIME-Version: 1.0\r\nMessage-ID: <1@example.org>\r\n" +
		"Content-Type: multipart/mixed; boundary=XX\r\n\r\n--XX\r\nContent-Type: text/plain\r\n\r\n" + text + "\r\n"
	for i := 0; i < len(files); i += 2 {
		s += fmt.Sprintf("--XX\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=%q\r\nContent-Transfer-Encoding: base64\r\n\r\n%s\r\n",
			files[i], base64.StdEncoding.EncodeToString([]byte(files[i+1])))
	}
	return []byte(s + "--XX--\r\n")
}

// attachment is a document as a list shows it.
type attachment struct {
	DocumentID, FileName, MediaType, Status, ParentID string
	Pages                                             *int
}

// attachments waits until a message has the attachments that are wanted, by name, each READY or FAILED.
func (c *client) attachments(message string, want ...string) map[string]attachment {
	c.t.Helper()
	var got map[string]attachment
	require.Eventually(c.t, func() bool {
		var p page[attachment]
		c.get(documents+"?parent="+message).into(c.t, http.StatusOK, &p)
		got = map[string]attachment{}
		for _, a := range p.Items {
			if a.Status == "READY" || a.Status == "FAILED" {
				got[a.FileName] = a
			}
		}
		if len(p.Items) != len(want) {
			return false
		}
		for _, name := range want {
			if got[name].ParentID == "" {
				return false
			}
		}
		return true
	}, waitLimit, 50*time.Millisecond, "%v", want)
	return got
}

// An attached PDF is found as a document of its own with its pages, says which message it came from, and goes with it.
func TestAttachmentsAreDocuments(t *testing.T) {
	t.Parallel()
	_, c := startDev(t)
	inner := letter("inner", "deep.txt", "The deepest word is feldspar.")
	sent := c.ingested("letter.eml", letter("hornblende", "report.pdf", string(pdfgen.Text(60, 9)), "../../x.bin", "\x00\x01\x02", "fwd.eml", string(inner)))
	got := c.attachments(sent.DocumentID, "report.pdf", "x.bin", "fwd.eml")
	require.Equal(t, []string{"application/pdf", "READY", sent.DocumentID}, []string{got["report.pdf"].MediaType, got["report.pdf"].Status, got["report.pdf"].ParentID})
	require.Positive(t, *got["report.pdf"].Pages)
	require.Equal(t, "FAILED", got["x.bin"].Status, "its own task says why")
	require.Equal(t, "SUCCEEDED", c.task(sent.TaskID).Status)
	deep := c.attachments(got["fwd.eml"].DocumentID, "deep.txt")["deep.txt"]

	hits := c.search("PAGEMARK7X9", "", 5)
	require.NotEmpty(t, hits)
	require.Equal(t, []string{got["report.pdf"].DocumentID, sent.DocumentID}, []string{hits[0].DocumentID, hits[0].ParentID})
	require.Equal(t, deep.DocumentID, c.search("feldspar", "", 5)[0].DocumentID)
	require.Empty(t, c.search("hornblende", "", 1)[0].ParentID)

	body, kind := form(t, "letter.eml", letter("hornblende again", "report.pdf", string(pdfgen.Text(60, 9)), "new.txt", "It is new: gabbro."))
	c.do(http.MethodPut, documents+"/"+sent.DocumentID, body, "Content-Type", kind).into(t, http.StatusAccepted, nil)
	renewed := c.attachments(sent.DocumentID, "report.pdf", "new.txt")
	require.Equal(t, got["report.pdf"].DocumentID, renewed["report.pdf"].DocumentID, "what is the same stays the same document")
	require.Empty(t, c.search("feldspar", "", 5))
	c.get(documents+"/"+deep.DocumentID).refused(t, http.StatusNotFound, "DOCUMENT_NOT_FOUND")

	c.do(http.MethodDelete, documents+"/"+sent.DocumentID, nil).into(t, http.StatusNoContent, nil)
	require.Empty(t, c.search("PAGEMARK7X9", "", 50), "gone with the answer")
	c.get(documents+"/"+renewed["new.txt"].DocumentID+"/deletion").into(t, http.StatusOK, nil)
	c.get(documents+"?parent=x").refused(t, http.StatusNotFound, "DOCUMENT_NOT_FOUND")
}
