package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/wire"
)

const (
	bulkPath     = "/api/knowledge/bulk"
	viewsPath    = "/api/knowledge/views"
	failuresPath = "/api/knowledge/failures"
)

func (h *Handler) bulkScreens() map[string]handlerFunc {
	return map[string]handlerFunc{
		"GET /failures": h.failures,
		"GET /bulk":     h.bulk, "POST /bulk": h.startBulk, "GET /bulk/{id}": h.operation, "POST /bulk/{id}/{step}": h.operationStep,
		"POST /views": h.saveView, "POST /views/{id}/delete": h.deleteView,
	}
}

func (h *Handler) failures(p *page) error {
	list, err := rows[wire.FailureGroup](p.limited(), failuresPath, "knowledgeBase")
	if err != nil {
		return err
	}
	return p.show("failures", p.T("Failures"), list)
}

// bulkData is a wish, what would become of it, and the operations before.
type bulkData struct {
	Request wire.BulkRequest
	Preview *wire.BulkPreview // nil: nothing was asked
	Actions []string
	List    wire.List[wire.BulkOperation]
}

// bulkActions are what is offered to do to many tasks, as the API calls it.
func (p *page) bulkActions() []string {
	if p.Operates() {
		return []string{"retry", "replay", "cancel", "suspend", "resume", "delete", "reindex"}
	}
	return []string{"retry", "replay", "cancel", "delete", "reindex"}
}

// wish reads an operation from a form or an address.
func wish(values url.Values) (wire.BulkRequest, error) {
	in := wire.BulkRequest{Action: values.Get("action"), Filter: strings.TrimSpace(values.Get("filter")), Reason: strings.TrimSpace(values.Get("reason"))}
	if text := strings.TrimSpace(values.Get("ratePerSecond")); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return in, refuse(http.StatusUnprocessableEntity, "INVALID_FIELD", "ratePerSecond is not a whole number")
		}
		in.RatePerSecond = n
	}
	return in, nil
}

// bulk shows what a wish would do: its address has the whole wish, and nothing is changed by looking.
func (h *Handler) bulk(p *page) error {
	in, err := wish(p.r.URL.Query())
	if err != nil {
		return err
	}
	d := bulkData{Request: in, Actions: p.bulkActions()}
	if d.List, err = rows[wire.BulkOperation](p.limited(), bulkPath); err != nil {
		return err
	}
	status := http.StatusOK
	if in.Action != "" && in.Filter != "" && p.Writes() {
		in.DryRun = true
		var preview wire.BulkPreview
		err := p.call(http.MethodPost, bulkPath, nil, in, &preview)
		var refused *Refusal
		switch {
		case errors.As(err, &refused) && refused.Status < http.StatusInternalServerError && refused.Status != http.StatusUnauthorized:
			p.refusal, status = refused, refused.Status // the wish stays, to be mended
		case err != nil:
			return err
		default:
			d.Preview = &preview
		}
	}
	return p.render(status, "bulk", p.T("Bulk"), d)
}

func (h *Handler) startBulk(p *page) error {
	in, err := wish(p.form)
	if err != nil {
		return err
	}
	var made wire.BulkOperation
	if err := p.call(http.MethodPost, bulkPath, nil, in, &made); err != nil {
		return err
	}
	p.redirect("/bulk/"+url.PathEscape(made.OperationID), nil)
	return nil
}

// operationData is an operation with the share that is over.
type operationData struct {
	wire.BulkOperation
	Over    int64 // done, failed and skipped
	Percent int
	JSON    string
}

func (h *Handler) operation(p *page) error {
	p.Section = "bulk"
	path := under(bulkPath, p.r.PathValue("id"))
	d := operationData{}
	if err := p.get(path, nil, &d.BulkOperation); err != nil {
		return err
	}
	d.Over = d.Done + d.Failed + p.Sum(d.Skipped)
	if d.Matched != nil && *d.Matched > 0 {
		d.Percent = int(min(d.Over*100 / *d.Matched, 100))
	}
	var err error
	if d.JSON, err = p.raw(path); err != nil {
		return err
	}
	return p.show("operation", p.T("Bulk operation"), d)
}

// MatchedCount is how many tasks the filter fits; 0: they are not counted yet.
func (d operationData) MatchedCount() int64 {
	if d.Matched == nil {
		return 0
	}
	return *d.Matched
}

func (h *Handler) operationStep(p *page) error {
	id, step := p.r.PathValue("id"), p.r.PathValue("step")
	if step != "pause" && step != "resume" && step != "stop" {
		return noSuchStep()
	}
	if err := p.call(http.MethodPost, under(bulkPath, id, step), nil, nil, nil); err != nil {
		return err
	}
	return p.done("bulk-"+step, "/bulk/"+url.PathEscape(id))
}

func (h *Handler) saveView(p *page) error {
	in := wire.ViewRequest{Name: p.form.Get("name"), Filter: p.form.Get("filter"), Shared: p.form.Get("shared") != ""}
	if err := p.call(http.MethodPost, viewsPath, nil, in, nil); err != nil {
		return err
	}
	return p.done("view", "/tasks")
}

func (h *Handler) deleteView(p *page) error {
	if err := p.call(http.MethodDelete, under(viewsPath, p.r.PathValue("id")), nil, nil, nil); err != nil {
		return err
	}
	return p.done("view-gone", "/tasks")
}

// Whole is this list of tasks as one filter expression; empty: it cannot be said in one.
func (p *page) Whole() string {
	if p.Param("q") != "" || p.Param("createdAfter")+p.Param("createdBefore")+p.Param("updatedAfter")+p.Param("updatedBefore") != "" {
		return ""
	}
	words := []string{}
	if f := strings.TrimSpace(p.Param("filter")); f != "" {
		words = append(words, f)
	}
	for _, c := range []struct{ param, key string }{{"status", "status"}, {"knowledgeBase", "kb"}, {"stage", "stage"}} {
		if v := p.Param(c.param); v != "" {
			words = append(words, c.key+":"+asValue(v))
		}
	}
	return strings.Join(words, " ")
}
