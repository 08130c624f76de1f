package console

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/console/drawing"
)

const (
	tasksPath     = "/api/knowledge/tasks"
	documentsPath = "/api/knowledge/documents"
	operatorTasks = "/internal/tasks"

	// pageRows is how many rows a list shows when its address names no other number.
	pageRows = "30"
	// logRows is how much of a task's log is drawn.
	logRows = "100"
)

func (h *Handler) taskScreens() map[string]handlerFunc {
	return map[string]handlerFunc{
		"GET /tasks": h.tasks, "GET /tasks/{id}": h.task, "GET /tasks/{id}/events": h.taskEvents, "POST /tasks/{id}/{step}": h.taskStep,
		"POST /selected": h.selected,
	}
}

// tasksData is the list of tasks.
type tasksData struct {
	List     wire.List[wire.Task]
	Facets   []facet
	Bases    []wordFacet
	Stages   []wordFacet
	Views    []wire.View
	Filtered bool
}

func (h *Handler) tasks(p *page) error {
	list, err := rows[wire.Task](p.limited(), tasksPath, "filter", "status", "knowledgeBase", "stage", "q", "documentId", "sort", "createdAfter", "createdBefore", "updatedAfter", "updatedBefore")
	status := http.StatusOK
	var refused *Refusal
	if errors.As(err, &refused) && refused.Parameter == "filter" { // the expression stays, to be mended
		p.refusal, status, err = refused, refused.Status, nil
	}
	if err != nil {
		return err
	}
	d := tasksData{List: list}
	if p.Texts() { // the filters of others may have names in them
		var views wire.List[wire.View]
		if err := p.get(viewsPath, nil, &views); err != nil && absent(err) == "" {
			return err
		}
		d.Views = views.Items
	}
	var counts wire.TaskCounts
	if err := p.get(tasksPath+"/counts", p.query("knowledgeBase"), &counts); err != nil && !gone(err) { // the list says that a base is unknown
		return err
	}
	d.Facets = p.facets(counts.Counts)
	d.Bases, d.Stages = p.baseFacets(counts.Bases), p.stageFacets(counts.Stages)
	for _, name := range []string{"filter", "status", "knowledgeBase", "stage", "q", "documentId"} {
		d.Filtered = d.Filtered || p.Param(name) != ""
	}
	return p.render(status, "tasks", p.T("Tasks"), d)
}

// column is a column of the list of tasks that can be shown or not.
type column struct {
	Name  string // in the address
	Label string
	On    bool
}

// Columns are the columns to choose of, in their order; those of the address are on, and when it has none, the usual ones.
func (p *page) Columns() []column {
	chosen := p.r.URL.Query()["col"]
	if len(chosen) == 0 {
		chosen = []string{"stage", "attempt", "why", "changed"}
	}
	all := []column{
		{Name: "base", Label: p.T("Base")}, {Name: "stage", Label: p.T("Stage")}, {Name: "attempt", Label: p.T("Attempt")}, {Name: "why", Label: p.T("Why")},
		{Name: "channel", Label: p.T("Channel")}, {Name: "created", Label: p.T("Created")}, {Name: "changed", Label: p.T("Changed")},
	}
	for i := range all {
		all[i].On = slices.Contains(chosen, all[i].Name)
	}
	return all
}

// Shown are the columns that are on, by name.
func (p *page) Shown() map[string]bool {
	on := map[string]bool{}
	for _, c := range p.Columns() {
		on[c.Name] = c.On
	}
	return on
}

// limited is the page with the usual number of rows, unless its address names one.
func (p *page) limited() *page {
	q := p.r.URL.Query()
	if q.Get("limit") != "" {
		return p
	}
	q.Set("limit", pageRows)
	other := *p
	other.r = p.r.Clone(p.r.Context())
	other.r.URL.RawQuery = q.Encode()
	return &other
}

// maybe reads what may be gone, or not this person's to see: nil then.
func maybe[T any](p *page, path string) (*T, error) {
	out := new(T)
	err := p.get(path, nil, out)
	var refused *Refusal
	if errors.As(err, &refused) && (refused.Status == http.StatusNotFound || refused.Status == http.StatusForbidden || refused.Status == http.StatusGone) {
		return nil, nil
	}
	return out, err
}

// statuses are those of a task, in the order in which people look for them.
func statuses() []taskstate.Status {
	return []taskstate.Status{
		taskstate.StatusDead, taskstate.StatusSuspended, taskstate.StatusRetrying, taskstate.StatusQueued, taskstate.StatusRunning,
		taskstate.StatusSucceeded, taskstate.StatusCancelled,
	}
}

// stats are the counts of all tasks; nil: they are not for who looks.
func (p *page) stats() (*wire.Stats, error) {
	if !p.Who.Operator() {
		return nil, nil
	}
	stats := &wire.Stats{}
	return stats, p.get(operatorTasks+"/stats", nil, stats)
}

// taskData is one task with all that is known of it.
type taskData struct {
	Explanation wire.Explanation
	Task        wire.Task
	Document    *wire.Document
	Log         wire.List[wire.Transition]
	Timeline    drawing.Timeline
	Inspected   *wire.InspectedTask // nil: not an operator
	JSON        string
}

func (h *Handler) task(p *page) error {
	p.Section = "tasks"
	id := p.r.PathValue("id")
	path := under(tasksPath, id)
	d := taskData{}
	if err := p.get(path+"/explain", nil, &d.Explanation); err != nil {
		return err
	}
	d.Task = d.Explanation.Task
	if err := p.get(path+"/transitions", url.Values{"limit": {logRows}}, &d.Log); err != nil {
		return err
	}
	if d.Task.DocumentID != "" {
		var err error
		if d.Document, err = maybe[wire.Document](p, under(documentsPath, string(d.Task.DocumentID))); err != nil {
			return err
		}
	}
	d.Timeline = drawing.OfLog(d.Log.Items, d.Explanation.Now.Time)
	source := path
	if p.Who.Operator() {
		source = under(operatorTasks, id)
		var err error
		if d.Inspected, err = maybe[wire.InspectedTask](p, source); err != nil {
			return err
		}
	}
	var err error
	if d.JSON, err = p.raw(source); err != nil {
		return err
	}
	return p.show("task", p.T("Task %s", p.Short(id)), d)
}

// taskEvents passes the API's stream of a task on.
func (h *Handler) taskEvents(p *page) error {
	r, err := p.request(http.MethodGet, under(tasksPath, p.r.PathValue("id"))+"/events", nil, "", nil, 0)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	if last := p.r.Header.Get("Last-Event-ID"); last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	p.visit.API(p.w, r, p.secret)
	return nil
}

// taskStep takes a step of a task's and leads back.
func (h *Handler) taskStep(p *page) error {
	id, step := p.r.PathValue("id"), p.r.PathValue("step")
	back := "/tasks/" + url.PathEscape(id)
	var err error
	switch step {
	case "retry", "cancel":
		err = p.call(http.MethodPost, under(tasksPath, id, step), nil, nil, nil)
	case "suspend", "resume":
		err = p.call(http.MethodPost, under(operatorTasks, id, step), nil, wire.Reason{Reason: p.form.Get("reason")}, nil)
	case "delete":
		err = p.call(http.MethodDelete, under(operatorTasks, id), nil, nil, nil)
	default:
		err = noSuchStep()
	}
	if err != nil {
		return err
	}
	return p.done(step, back)
}

// uploads

func (h *Handler) uploadScreens() map[string]handlerFunc {
	return map[string]handlerFunc{"GET /upload": h.uploadPage, "POST /upload": h.upload}
}

// uploadData is the form, and what became of the files before.
type uploadData struct {
	FileBytes, RequestBytes int64
	Tasks                   []wire.Task
	Outcomes                []outcome
}

// outcome is what became of one file.
type outcome struct {
	wire.AcceptedTask
	Error *wire.Problem `json:"error"`
}

// most shown after an upload; the list of tasks has them all.
const mostShown = 50

func (h *Handler) uploadPage(p *page) error {
	d := uploadData{FileBytes: h.cfg.FileBytes, RequestBytes: h.cfg.RequestBytes}
	for _, id := range p.r.URL.Query()["task"] {
		if len(d.Tasks) == mostShown {
			break
		}
		t, err := maybe[wire.Task](p, under(tasksPath, id))
		if err != nil {
			return err
		}
		if t != nil {
			d.Tasks = append(d.Tasks, *t)
		}
	}
	return p.show("upload", p.T("Upload"), d)
}

// upload passes the form on as it comes in, and shows its tasks. The script asks for JSON and gets the API's own answer.
func (h *Handler) upload(p *page) error {
	r, err := p.request(http.MethodPost, documentsPath+"/upload-async", nil, p.r.Header.Get("Content-Type"), p.r.Body, p.r.ContentLength)
	if err != nil {
		return err
	}
	a, err := p.ask(r)
	if p.r.Header.Get("Accept") == "application/json" && a != nil {
		p.w.Header().Set("Content-Type", a.header.Get("Content-Type"))
		p.w.WriteHeader(a.status)
		_, _ = p.w.Write(a.body.Bytes())
		return nil
	}
	if err != nil {
		return err
	}
	var many wire.List[outcome]
	if err := json.Unmarshal(a.body.Bytes(), &many); err != nil {
		return err
	}
	if many.Items == nil {
		var one outcome
		if err := json.Unmarshal(a.body.Bytes(), &one); err != nil {
			return err
		}
		many.Items = []outcome{one}
	}
	_, _ = io.Copy(io.Discard, p.r.Body)
	q := url.Values{}
	for _, o := range many.Items {
		if o.Error != nil || o.TaskID == "" {
			return p.show("upload", p.T("Upload"), uploadData{FileBytes: h.cfg.FileBytes, RequestBytes: h.cfg.RequestBytes, Outcomes: many.Items})
		}
		q.Add("task", o.TaskID)
	}
	if len(many.Items) == 1 {
		p.redirect("/tasks/"+url.PathEscape(many.Items[0].TaskID), nil)
		return nil
	}
	if len(many.Items) > mostShown {
		p.redirect("/tasks", url.Values{"sort": {"-createdAt"}})
		return nil
	}
	p.redirect("/upload", q)
	return nil
}
