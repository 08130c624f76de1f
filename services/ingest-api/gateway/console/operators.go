package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

func (h *Handler) operatorScreens() map[string]handlerFunc {
	all := map[string]handlerFunc{
		"GET /suspended": h.suspended, "GET /deadletters": h.deadLetters, "POST /deadletters": h.deadLettersStep, "POST /deadletters/{id}/{step}": h.deadLetterStep,
		"GET /queues/{topic}/letters": h.topicLetters, "POST /queues/{topic}/letters": h.topicLettersStep,
		"GET /queues/{topic}/letters/{id}": h.topicLetter, "POST /queues/{topic}/letters/{id}/{step}": h.topicLetterStep,
		"GET /queues": h.queues, "GET /queues/{topic}": h.queue, "POST /outbox/requeue": h.requeueEvents, "POST /outbox/{id}/requeue": h.requeueEvent,
		"GET /keys": h.keys, "POST /keys": h.createKey, "POST /keys/{id}/revoke": h.revokeKey,
		"GET /audit": h.audit, "GET /workers": h.workers, "POST /workers/{worker}/{step}": h.workerStep, "GET /settings": h.settings,
	}
	for pattern, f := range all {
		all[pattern] = operators(f)
	}
	return all
}

// operators is a screen of which nobody else sees that it is there. What it shows is judged by the API all the same.
func operators(f handlerFunc) handlerFunc {
	return func(p *page) error {
		if !p.Who.Operator() {
			return refuse(http.StatusForbidden, "FORBIDDEN", "this screen is for operators")
		}
		return f(p)
	}
}

func (h *Handler) suspended(p *page) error {
	list, err := rows[wire.SuspendedTask](p.limited(), operatorTasks+"/suspended")
	if err != nil {
		return err
	}
	return p.show("suspended", p.T("Suspended"), list)
}

// gone reports whether the API knows nothing of what was asked for.
func gone(err error) bool { return absent(err) != "" }

// absent says why a part of the service is not there: the API's 404 of its lists. Empty: it is.
func absent(err error) string {
	var refused *Refusal
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return refused.Message
	}
	return ""
}

type queuesData struct {
	Topics  wire.List[wire.Topic]
	NoTopic string // why there is none
	Stats   wire.Stats
	Outbox  *wire.OutboxStats
	NoBox   string
	Events  wire.List[wire.OutboxEvent]
}

func (h *Handler) queues(p *page) error {
	d := queuesData{}
	if err := p.get(operatorTasks+"/stats", nil, &d.Stats); err != nil {
		return err
	}
	err := p.get("/internal/mq/topics", nil, &d.Topics)
	if d.NoTopic = absent(err); err != nil && d.NoTopic == "" {
		return err
	}
	box := wire.OutboxStats{}
	err = p.get("/internal/outbox", nil, &box)
	if d.NoBox = absent(err); err != nil && d.NoBox == "" {
		return err
	}
	if err == nil {
		d.Outbox = &box
		if d.Events, err = rows[wire.OutboxEvent](p.limited(), "/internal/outbox/events", "state", "cause", "topic", "taskId"); err != nil {
			return err
		}
	}
	return p.show("queues", p.T("Queues"), d)
}

type queueData struct {
	Topic  wire.TopicStats
	Groups []groupData
	Kind   string
}

type groupData struct {
	wire.Group
	Stats   wire.GroupStats
	Owners  *wire.Owners
	Pending wire.List[wire.Pending]
}

func (h *Handler) queue(p *page) error {
	p.Section = "queues"
	path := under("/internal/mq/topics", p.r.PathValue("topic"))
	kind := p.query("kind")
	d := queueData{Kind: p.Param("kind")}
	if err := p.get(path, kind, &d.Topic); err != nil {
		return err
	}
	var groups wire.List[wire.Group]
	if err := p.get(path+"/groups", kind, &groups); err != nil {
		return err
	}
	for _, g := range groups.Items {
		one := groupData{Group: g}
		at := under(path+"/groups", g.Name)
		if err := p.get(at, kind, &one.Stats); err != nil {
			return err
		}
		owners := wire.Owners{}
		if err := p.get(at+"/owners", kind, &owners); err == nil {
			one.Owners = &owners
		} else if absent(err) == "" {
			return err
		}
		few := url.Values{"limit": {"20"}}
		if d.Kind != "" {
			few.Set("kind", d.Kind)
		}
		if err := p.get(at+"/pending", few, &one.Pending); err != nil {
			return err
		}
		d.Groups = append(d.Groups, one)
	}
	return p.show("queue", p.Clip(d.Topic.Name, 80), d)
}

func (h *Handler) requeueEvents(p *page) error {
	if err := p.call(http.MethodPost, "/internal/outbox/requeue", nil, wire.RequeueEvents{}, nil); err != nil {
		return err
	}
	return p.done("requeue", "/queues")
}

func (h *Handler) requeueEvent(p *page) error {
	if err := p.call(http.MethodPost, under("/internal/outbox/events", p.r.PathValue("id"), "requeue"), nil, nil, nil); err != nil {
		return err
	}
	return p.done("requeue", "/queues")
}

type keysData struct {
	List    wire.List[wire.Key]
	Missing string
	Created *wire.CreatedKey // nil: none was made just now
}

func (h *Handler) keys(p *page) error {
	d := keysData{}
	list, err := rows[wire.Key](p.limited(), "/internal/keys")
	if d.Missing = absent(err); err != nil && d.Missing == "" {
		return err
	}
	d.List = list
	return p.show("keys", p.T("Keys"), d)
}

// createKey shows the secret on the response itself: it is nowhere else, so no other page could.
func (h *Handler) createKey(p *page) error {
	p.Section = "keys"
	form := p.form
	in := wire.KeyRequest{UserID: strings.TrimSpace(form.Get("userId")), Name: strings.TrimSpace(form.Get("name")), Scopes: form["scopes"]}
	in.Role = roleOf(form.Get("role"))
	in.Bases = strings.FieldsFunc(form.Get("knowledgeBases"), func(r rune) bool { return r == ',' || r == '\n' || r == '\r' })
	for i := range in.Bases {
		in.Bases[i] = strings.TrimSpace(in.Bases[i])
	}
	if text := strings.TrimSpace(form.Get("ttlDays")); text != "" {
		var err error
		if in.TTLDays, err = strconv.Atoi(text); err != nil {
			return refuse(http.StatusUnprocessableEntity, "INVALID_FIELD", "ttlDays is not a whole number")
		}
	}
	d := keysData{Created: &wire.CreatedKey{}}
	if err := p.call(http.MethodPost, "/internal/keys", nil, in, d.Created); err != nil {
		return err
	}
	if err := p.get("/internal/keys", url.Values{"limit": {pageRows}}, &d.List); err != nil {
		return err
	}
	return p.show("keys", p.T("Keys"), d)
}

func (h *Handler) revokeKey(p *page) error {
	if err := p.call(http.MethodDelete, under("/internal/keys", p.r.PathValue("id")), nil, nil, nil); err != nil {
		return err
	}
	return p.done("revoke", "/keys")
}

type auditData struct {
	List    wire.List[wire.AuditEvent]
	Missing string
}

func (h *Handler) audit(p *page) error {
	list, err := rows[wire.AuditEvent](p.limited(), "/internal/audit", "action", "actor")
	d := auditData{List: list, Missing: absent(err)}
	if err != nil && d.Missing == "" {
		return err
	}
	return p.show("audit", p.T("Audit"), d)
}

func (h *Handler) workers(p *page) error {
	var list wire.List[wire.Worker]
	if err := p.get("/internal/workers", nil, &list); err != nil {
		return err
	}
	return p.show("workers", p.T("Workers"), list)
}

func (h *Handler) workerStep(p *page) error {
	step := p.r.PathValue("step")
	if step != "drain" && step != "resume" {
		return noSuchStep()
	}
	if err := p.call(http.MethodPost, under("/internal/workers", p.r.PathValue("worker"), step), nil, nil, nil); err != nil {
		return err
	}
	return p.done("worker-"+step, "/workers")
}

// WorkerPath is the address below Path of a step of a process.
func (p *page) WorkerPath(name, step string) string { return under("/workers", name, step) }

func (h *Handler) settings(p *page) error {
	var list wire.List[wire.Setting]
	if err := p.get("/internal/settings", nil, &list); err != nil && absent(err) == "" {
		return err
	}
	return p.show("settings", p.T("Settings"), list)
}

// indented is JSON for reading; empty: there is none.
func indented(text json.RawMessage) (string, error) {
	if len(text) == 0 || string(text) == "null" {
		return "", nil
	}
	var out bytes.Buffer
	err := json.Indent(&out, text, "", "  ")
	return out.String(), err
}

// roleOf is a form's role; the API judges it.
func roleOf(text string) taskstate.Role { return taskstate.Role(text) }
