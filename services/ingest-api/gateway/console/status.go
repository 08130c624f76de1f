package console

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"

	"github.com/millweir/millweir/pkg/taskstate"
)

// mark is how a status is shown: a sign and a word, so that colour is never alone.
type mark struct{ sign, word string }

// marks are the statuses of tasks and documents.
var marks = map[string]mark{
	"QUEUED": {"○", "queued"}, "RUNNING": {"◐", "running"}, "RETRYING": {"↻", "retrying"}, "SUCCEEDED": {"✓", "succeeded"},
	"DEAD": {"✕", "failed"}, "SUSPENDED": {"‖", "suspended"}, "CANCELLED": {"–", "cancelled"},
	"BUILDING": {"◐", "being made"}, "VISIBLE": {"✓", "visible"}, "SUPERSEDED": {"–", "superseded"}, "ABANDONED": {"✕", "given up"},
	"PROCESSING": {"◐", "processing"}, "READY": {"✓", "ready"}, "FAILED": {"✕", "failed"},
}

// StatusText is a status as a word.
func (p *page) StatusText(status any) string {
	s := fmt.Sprint(status)
	if m, ok := marks[s]; ok {
		return p.T(m.word)
	}
	return s
}

// Status is a status as a sign and a word.
func (p *page) Status(status any) template.HTML {
	s := fmt.Sprint(status)
	m, ok := marks[s]
	if !ok {
		return template.HTML(template.HTMLEscapeString(s))
	}
	return template.HTML(`<span class="st st-` + s + `"><span aria-hidden="true">` + m.sign + `</span> ` + template.HTMLEscapeString(p.T(m.word)) + `</span>`)
}

// AllStatuses are those of a task.
func (p *page) AllStatuses() []taskstate.Status { return statuses() }

// Retries reports whether a retry is offered; whether it is taken is the API's to say.
func (p *page) Retries(s taskstate.Status) bool {
	return s == taskstate.StatusDead || s == taskstate.StatusCancelled || s == taskstate.StatusRetrying
}

// Cancels reports whether a cancellation is offered.
func (p *page) Cancels(s taskstate.Status) bool { return !s.Terminal() }

// Sum adds counts.
func (p *page) Sum(counts map[string]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Unfinished are the tasks that have not ended by themselves yet.
func (p *page) Unfinished(tasks map[taskstate.Status]int64) int64 {
	return taskstate.Unfinished(tasks)
}

// Args are what a part of a template is given, as name, value, ….
func (p *page) Args(pairs ...any) map[string]any {
	out := map[string]any{"then": nil, "link": nil, "class": nil, "hint": nil, "reason": nil, "most": nil, "cascade": nil}
	for i := 0; i+1 < len(pairs); i += 2 {
		out[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return out
}

// doneTexts say what a form has done, by the word in the address that it leads to.
var doneTexts = map[string]string{
	"retry": "The task is queued again.", "cancel": "The task is cancelled.", "suspend": "The task is suspended.",
	"resume": "The task is queued again.", "delete": "The task is withdrawn.", "document": "The document is deleted.",
	"rollback": "The earlier content becomes a new version.", "created": "The knowledge base is there.",
	"base": "The knowledge base is deleted.", "replay": "The dead letter is replayed.", "drop": "The dead letter is dropped.",
	"requeue": "Dead events are sent again.", "revoke": "The key is revoked.",
	"bulk-pause": "The operation is paused.", "bulk-resume": "The operation goes on.", "bulk-stop": "The operation is stopped.",
	"worker-drain": "The process is asked to take no more tasks.", "worker-resume": "The process takes tasks again.",
	"view": "The view is saved.", "view-gone": "The view is removed.",
}

// maxSelected is how many tasks one form takes a step of: a page of them. More is the API's bulk work.
const maxSelected = 100

// selected takes a step of several tasks, one after the other, and says how many took it.
func (h *Handler) selected(p *page) error {
	step, ids := p.form.Get("step"), p.form["task"]
	switch {
	case step != "retry" && step != "cancel":
		return noSuchStep()
	case len(ids) == 0:
		return refuse(http.StatusUnprocessableEntity, "INVALID_FIELD", "no task is selected; choose some with the boxes before them")
	case len(ids) > maxSelected:
		return refuse(http.StatusUnprocessableEntity, "INVALID_FIELD", fmt.Sprintf("%d tasks are selected, allowed are %d", len(ids), maxSelected))
	}
	took := 0
	for _, id := range ids {
		err := p.call(http.MethodPost, under(tasksPath, id, step), nil, nil, nil)
		var refused *Refusal
		switch {
		case err == nil:
			took++
		case errors.As(err, &refused) && refused.Status == http.StatusConflict: // its status does not allow it
		default:
			return err
		}
	}
	u, err := url.Parse(next(p.form.Get("back")))
	if err != nil {
		return err
	}
	q := u.Query()
	q.Set("took", strconv.Itoa(took))
	q.Set("of", strconv.Itoa(len(ids)))
	p.redirect(u.EscapedPath(), q)
	return nil
}

// tookOf says how many of the selected tasks took a step; empty: none were asked.
func (p *page) tookOf() string {
	took, err := strconv.Atoi(p.Param("took"))
	of, err2 := strconv.Atoi(p.Param("of"))
	if err != nil || err2 != nil {
		return ""
	}
	return p.T("Done for %d of %d selected tasks; the others are in a status that does not allow it.", took, of)
}
