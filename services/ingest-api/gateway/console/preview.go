package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/wire"
)

func (h *Handler) previewScreens() map[string]handlerFunc {
	return map[string]handlerFunc{"GET /preview": h.previewForm, "POST /preview": h.askPreview, "GET /preview/{id}": h.preview}
}

// previewData is the form of a preview, and what one has found.
type previewData struct {
	FileBytes int64
	Document  *wire.Document    // to look at; nil: a file that is sent
	Run       *wire.WorkflowRun // nil: nothing was asked yet
	Preview   *wire.Preview     // nil: not yet, or it failed
}

// cutting is a way to cut a document, as an option of a form.
type cutting struct {
	Name  string // in words
	Value string // JSON, as the API takes it; empty: the base's
}

// Cuttings are the ways that a preview offers. The API takes others.
func (p *page) Cuttings() []cutting {
	return []cutting{
		{p.T("as the base does"), ""},
		{p.T("whole sentences, small segments"), `{"strategy":"recursive","size":160}`},
		{p.T("whole sentences, as usual"), `{"strategy":"recursive"}`},
		{p.T("whole sentences, large segments"), `{"strategy":"recursive","size":1000}`},
		{p.T("by headings"), `{"strategy":"headings"}`},
		{p.T("single sentences with those around"), `{"strategy":"sentences"}`},
		{p.T("rows of tables"), `{"strategy":"rows"}`},
		{p.T("small segments inside large ones"), `{"strategy":"parents"}`},
	}
}

// Cost is an amount of money, as exact as the price of a few texts asks for.
func (p *page) Cost(amount *float64) string { return strconv.FormatFloat(*amount, 'g', 4, 64) }

func (h *Handler) previewForm(p *page) error {
	p.Section = "upload"
	d := previewData{FileBytes: h.cfg.FileBytes}
	if id := p.Param("document"); id != "" {
		d.Document = &wire.Document{}
		if err := p.get(under(documentsPath, id), nil, d.Document); err != nil {
			return err
		}
	}
	return p.show("preview", p.T("Preview"), d)
}

// askPreview passes a form with a file on as it comes in, or names a document, and leads to what comes of it.
func (h *Handler) askPreview(p *page) error {
	path, wait := "/api/knowledge/preview", url.Values{"waitSeconds": {"5"}}
	reply := wire.PreviewReply{}
	if p.sendsFiles() {
		r, err := p.request(http.MethodPost, path, wait, p.r.Header.Get("Content-Type"), p.r.Body, p.r.ContentLength)
		if err != nil {
			return err
		}
		a, err := p.ask(r)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(a.body.Bytes(), &reply); err != nil {
			return err
		}
	} else {
		in := wire.PreviewRequest{DocumentID: p.form.Get("documentId")}
		if text := strings.TrimSpace(p.form.Get("chunking")); text != "" {
			in.Chunking = &wire.Chunking{}
			if err := json.Unmarshal([]byte(text), in.Chunking); err != nil {
				return refuse(http.StatusUnprocessableEntity, "INVALID_FIELD", "chunking is not a JSON object; choose one of the list")
			}
		}
		if err := p.call(http.MethodPost, path, wait, in, &reply); err != nil {
			return err
		}
	}
	p.redirect("/preview/"+url.PathEscape(reply.TaskID), nil)
	return nil
}

func (h *Handler) preview(p *page) error {
	p.Section = "upload"
	reply := wire.WorkflowReply{}
	if err := p.get(under("/api/workflows/tasks", p.r.PathValue("id")), nil, &reply); err != nil {
		return err
	}
	d := previewData{FileBytes: h.cfg.FileBytes, Run: &reply.Data}
	if result := reply.Data.Result; len(result) > 0 && string(result) != "null" {
		if err := json.Unmarshal(result, &d.Preview); err != nil || d.Preview.Chunker == "" {
			return refuse(http.StatusNotFound, "NOT_FOUND", "this task is no preview")
		}
	}
	return p.show("preview", p.T("Preview"), d)
}
