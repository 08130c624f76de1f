package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/wire"
)

func (h *Handler) documentScreens() map[string]handlerFunc {
	return map[string]handlerFunc{
		"GET /documents": h.documents, "GET /documents/{id}": h.document, "GET /documents/{id}/file": h.documentFile,
		"POST /documents/{id}/delete": h.deleteDocument, "POST /documents/{id}/rollback": h.rollback,
	}
}

// documentsData is the list of documents.
type documentsData struct {
	List     wire.List[wire.Document]
	Statuses []string
	Filtered bool
}

func (h *Handler) documents(p *page) error {
	list, err := rows[wire.Document](p.limited(), documentsPath, "knowledgeBase", "status", "stage", "q", "sort", "metadata", "parent",
		"createdAfter", "createdBefore", "updatedAfter", "updatedBefore")
	if err != nil {
		return err
	}
	d := documentsData{List: list, Statuses: documentStatuses()}
	for _, name := range []string{"knowledgeBase", "status", "stage", "q", "metadata", "parent"} {
		d.Filtered = d.Filtered || p.Param(name) != ""
	}
	return p.show("documents", p.T("Documents"), d)
}

// documentData is one document with its text and its tasks.
type documentData struct {
	Document wire.Document
	Segments wire.List[wire.Segment]
	Versions wire.List[wire.Version] // the newest ones
	Tasks    wire.List[wire.Task]
	JSON     string
}

func (h *Handler) document(p *page) error {
	p.Section = "documents"
	id := p.r.PathValue("id")
	path := under(documentsPath, id)
	d := documentData{}
	err := p.get(path, nil, &d.Document)
	var refused *Refusal
	if errors.As(err, &refused) && (refused.Status == http.StatusNotFound || refused.Status == http.StatusGone) {
		receipt, gone := maybe[wire.Deletion](p, path+"/deletion")
		if gone == nil && receipt != nil {
			return p.show("deletion", p.T("Deleted document"), *receipt)
		}
	}
	if err != nil {
		return err
	}
	if d.Document.VisibleVersion > 0 && p.Texts() {
		if d.Segments, err = rows[wire.Segment](p.limited(), path+"/segments"); err != nil {
			return err
		}
	}
	if err := p.get(path+"/versions", url.Values{"limit": {"20"}}, &d.Versions); err != nil {
		return err
	}
	if err := p.get(tasksPath, url.Values{"documentId": {id}, "sort": {"-createdAt"}, "limit": {"20"}}, &d.Tasks); err != nil {
		return err
	}
	if d.JSON, err = p.raw(path); err != nil {
		return err
	}
	return p.show("document", p.DocName(d.Document, 80), d)
}

// documentFile passes the file of a version on as it comes.
func (h *Handler) documentFile(p *page) error {
	r, err := p.request(http.MethodGet, under(documentsPath, p.r.PathValue("id"), "file"), p.query("version"), "", nil, 0)
	if err != nil {
		return err
	}
	for _, name := range []string{"Range", "If-Range", "If-None-Match"} {
		if v := p.r.Header.Get(name); v != "" {
			r.Header.Set(name, v)
		}
	}
	_, err = p.into(&answer{below: p.w, header: http.Header{}, pass: true}, r)
	return err
}

func (h *Handler) deleteDocument(p *page) error {
	id := p.r.PathValue("id")
	if err := p.call(http.MethodDelete, under(documentsPath, id), nil, nil, nil); err != nil {
		return err
	}
	p.redirect("/documents/"+url.PathEscape(id), url.Values{"done": {"document"}})
	return nil
}

func (h *Handler) rollback(p *page) error {
	id := p.r.PathValue("id")
	in := wire.Rollback{}
	if text := strings.TrimSpace(p.form.Get("version")); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return refuse(http.StatusUnprocessableEntity, "INVALID_FIELD", "version is not a whole number")
		}
		in.Version = &n
	}
	if err := p.call(http.MethodPost, under(documentsPath, id, "rollback"), nil, in, nil); err != nil {
		return err
	}
	return p.done("rollback", "/documents/"+url.PathEscape(id))
}

// bases

const basesPath = "/api/knowledge/bases"

func (h *Handler) baseScreens() map[string]handlerFunc {
	return map[string]handlerFunc{
		"GET /bases": h.bases, "POST /bases": h.createBase, "GET /bases/{id}": h.base,
		"POST /bases/{id}/reindex": h.reindex, "POST /bases/{id}/delete": h.deleteBase,
	}
}

func (h *Handler) bases(p *page) error {
	q := p.limited().query("q", "sort", "cursor", "limit")
	q.Set("counts", "true")
	var list wire.List[wire.Base]
	if err := p.get(basesPath, q, &list); err != nil {
		return err
	}
	return p.show("bases", p.T("Knowledge bases"), list)
}

func (h *Handler) createBase(p *page) error {
	var made wire.Base
	if err := p.call(http.MethodPost, basesPath, nil, wire.BaseRequest{Name: p.form.Get("name"), SearchMode: p.form.Get("searchMode")}, &made); err != nil {
		return err
	}
	p.redirect("/bases/"+url.PathEscape(made.KnowledgeBaseID), url.Values{"done": {"created"}})
	return nil
}

// baseData is one base.
type baseData struct {
	Summary  wire.Summary
	Statuses []string
	Reindex  *wire.WorkflowRun // that was asked for; nil: none
	Result   string            // its JSON, indented
	JSON     string
}

func (h *Handler) base(p *page) error {
	p.Section = "bases"
	path := under(basesPath, p.r.PathValue("id"))
	d := baseData{Statuses: documentStatuses()}
	if err := p.get(path+"/summary", nil, &d.Summary); err != nil {
		return err
	}
	if task := p.Param("reindex"); task != "" {
		reply, err := maybe[wire.WorkflowReply](p, under("/api/workflows/tasks", task))
		if err != nil {
			return err
		}
		if reply != nil {
			d.Reindex = &reply.Data
			if d.Result, err = indented(reply.Data.Result); err != nil {
				return err
			}
		}
	}
	var err error
	if d.JSON, err = p.raw(path); err != nil {
		return err
	}
	return p.show("base", p.Clip(d.Summary.Base.Name, 80), d)
}

func (h *Handler) reindex(p *page) error {
	id := p.r.PathValue("id")
	var reply wire.WorkflowReply
	dry := p.form.Get("dryRun") != ""
	if err := p.call(http.MethodPost, under(basesPath, id, "reindex"), url.Values{"waitSeconds": {"5"}}, wire.Reindex{DryRun: dry}, &reply); err != nil {
		return err
	}
	p.redirect("/bases/"+url.PathEscape(id), url.Values{"reindex": {reply.Data.TaskID}})
	return nil
}

func (h *Handler) deleteBase(p *page) error {
	q := url.Values{}
	if p.form.Get("cascade") != "" {
		q.Set("cascade", "true")
	}
	if err := p.call(http.MethodDelete, under(basesPath, p.r.PathValue("id")), q, nil, nil); err != nil {
		return err
	}
	p.redirect("/bases", url.Values{"done": {"base"}})
	return nil
}

// documentStatuses are those of a document, as the API's filter takes them.
func documentStatuses() []string { return []string{"QUEUED", "PROCESSING", "READY", "FAILED"} }
