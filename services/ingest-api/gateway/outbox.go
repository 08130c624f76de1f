package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

const (
	outboxList = "outbox"
	// requeueDefault and requeueMost bound what one request makes NEW again.
	requeueDefault, requeueMost = 1000, 10_000
)

// Outbox shows and mends the events of the Kafka transport; outbox.Store is one.
type Outbox interface {
	// Stats counts events by state.
	Stats(ctx context.Context, states ...outbox.Status) (outbox.Stats, error)
	// List reads a page of events, the newest first.
	List(ctx context.Context, q outbox.Query) ([]outbox.Item, error)
	// Get reads an event with its payload. outbox.ErrNotFound.
	Get(ctx context.Context, id string) (outbox.Item, error)
	// Requeue makes a DEAD event NEW. outbox.ErrNotFound, outbox.ErrNotDead.
	Requeue(ctx context.Context, id string, note taskstate.TxFunc) error
	// RequeueAll makes at most limit of the DEAD events that q selects NEW and returns how many.
	RequeueAll(ctx context.Context, q outbox.Query, limit int, note taskstate.TxFunc) (int, error)
}

// operators shows and mends the outbox, API keys and the audit log.
type operators struct {
	outbox Outbox
	keys   KeyAdmin
	trail  trail
	log    *slog.Logger
}

// routes are the addresses.
func (g *operators) routes() []route {
	const events = "/internal/outbox/events"
	const one = events + "/:eventId"
	return []route{
		{http.MethodGet, "/internal/outbox", accessInspect, nil, g.outboxStats},
		{http.MethodPost, "/internal/outbox/requeue", accessOperate, nil, g.requeueEvents},
		{http.MethodGet, events, accessInspect, []string{"state", "cause", "topic", "taskId", "cursor", "limit"}, g.listEvents},
		{http.MethodGet, one, accessInspect, nil, g.getEvent},
		{http.MethodPost, one + "/requeue", accessOperate, nil, g.requeueEvent},
		{http.MethodGet, "/internal/audit", accessInspect, []string{"action", "actor", "cursor", "limit"}, g.listAudit},
		{http.MethodGet, "/internal/keys", accessInspect, []string{"cursor", "limit"}, g.listKeys},
		{http.MethodPost, "/internal/keys", accessOperate, nil, g.createKey},
		{http.MethodDelete, "/internal/keys/:keyId", accessOperate, nil, g.revokeKey},
	}
}

// noOutbox returns where there is none.
func (g *operators) noOutbox() error {
	if g.outbox == nil {
		return problemf(codeNotFound, "this service has no outbox")
	}
	return nil
}

func (g *operators) outboxStats(c *gin.Context) error {
	if err := g.noOutbox(); err != nil {
		return err
	}
	s, err := g.outbox.Stats(c.Request.Context())
	if err != nil {
		return err
	}
	counts := map[string]int64{}
	for state, n := range s.Counts {
		counts[string(state)] = n
	}
	return writeJSON(c, http.StatusOK, wire.OutboxStats{Counts: counts, Backlog: s.Backlog(), OldestAgeSeconds: s.Oldest.Seconds()})
}

func viewOutboxEvent(e outbox.Item) wire.OutboxEvent {
	return wire.OutboxEvent{
		ID: e.ID, Topic: e.Topic, TaskID: e.Key, Status: string(e.Status), Cause: string(e.Cause), AttemptCount: e.AttemptCount,
		NextRetryAt: wire.MaybeAt(e.NextRetryAt), LastError: wire.NullText(e.LastError), CreatedAt: wire.At(e.CreatedAt), SentAt: wire.MaybeAt(e.SentAt),
	}
}

func (g *operators) listEvents(c *gin.Context) error {
	if err := g.noOutbox(); err != nil {
		return err
	}
	q, err := eventQuery(c)
	if err != nil {
		return err
	}
	name := outboxList + ":" + string(q.State)
	limit, after, err := pageParams(c, name)
	if err != nil {
		return err
	}
	if after != nil {
		if q.After, err = eventCursor(*after); err != nil {
			return err
		}
	}
	q.Limit = limit + 1
	rows, err := g.outbox.List(c.Request.Context(), q)
	if err != nil {
		return err
	}
	next := func(e outbox.Item) cursor { return cursorOfEvent(name, e) }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewOutboxEvent, next))
}

// cursorOfEvent is the place of an event in a list; the time 0 stands for never.
func cursorOfEvent(name string, e outbox.Item) cursor {
	place := e.Cursor()
	at := int64(0)
	if !place.WakeAt.IsZero() {
		at = place.WakeAt.UnixMicro()
	}
	return cursor{list: name, at: at, id: formatID(place.Seq)}
}

// eventCursor reads it back.
func eventCursor(c cursor) (*outbox.Cursor, error) {
	seq, err := strconv.ParseInt(c.id, 10, 64)
	if err != nil || seq < 1 || c.at < 0 || c.at > latestEvent {
		return nil, (&apiError{code: codeBadCursor}).about("cursor")
	}
	out := &outbox.Cursor{Seq: seq}
	if c.at > 0 {
		out.WakeAt = time.UnixMicro(c.at).UTC()
	}
	return out, nil
}

// latestEvent is the last moment that every database can hold.
var latestEvent = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()

// eventQuery reads the filters of a list: DEAD events, unless a state or a task is named.
func eventQuery(c *gin.Context) (q outbox.Query, err error) {
	if q.State, err = oneWord(c, "state", []outbox.Status{outbox.StatusNew, outbox.StatusRetrying, outbox.StatusSent, outbox.StatusDead}); err != nil {
		return q, err
	}
	if q.Cause, err = oneWord(c, "cause", []outbox.Cause{outbox.CauseNone, outbox.CauseUnavailable, outbox.CauseRefused}); err != nil {
		return q, err
	}
	if q.Topic, err = textParam(c, "topic"); err != nil {
		return q, err
	}
	if q.Task, err = textParam(c, "taskId"); err != nil {
		return q, err
	}
	if q.State == "" && q.Task == "" {
		q.State = outbox.StatusDead
	}
	return q, nil
}

func (g *operators) getEvent(c *gin.Context) error {
	e, err := g.event(c)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, wire.OneOutboxEvent{OutboxEvent: viewOutboxEvent(e), Payload: e.Payload})
}

// event reads the event that the path names.
func (g *operators) event(c *gin.Context) (outbox.Item, error) {
	if err := g.noOutbox(); err != nil {
		return outbox.Item{}, err
	}
	id, ok := pathID(c, "eventId")
	if !ok {
		return outbox.Item{}, outbox.ErrNotFound
	}
	return g.outbox.Get(c.Request.Context(), id)
}

func (g *operators) requeueEvent(c *gin.Context) error {
	e, err := g.event(c)
	if err != nil {
		return err
	}
	if err := g.outbox.Requeue(c.Request.Context(), e.ID, g.trail.acting(c, audit.EventRequeue, e.ID, e.LastError).Note); err != nil {
		return err
	}
	e, err = g.event(c)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewOutboxEvent(e))
}

func (g *operators) requeueEvents(c *gin.Context) error {
	if err := g.noOutbox(); err != nil {
		return err
	}
	var body wire.RequeueEvents
	if err := readJSON(c, &body, true); err != nil {
		return err
	}
	if !slices.Contains([]outbox.Cause{"", outbox.CauseUnavailable, outbox.CauseRefused}, outbox.Cause(body.Cause)) {
		return problemf(codeInvalidField, "cause is %s, allowed are BROKER_UNAVAILABLE and REFUSED", shown(body.Cause)).about("cause")
	}
	if err := checkText("topic", body.Topic, maxFilter, codeInvalidText, codeFieldTooLong); err != nil {
		return err
	}
	if body.Limit == 0 {
		body.Limit = requeueDefault
	}
	if body.Limit < 1 || body.Limit > requeueMost {
		return problemf(codeInvalidField, "limit is %d, allowed is 1 to %d", body.Limit, requeueMost).about("limit")
	}
	note := g.trail.acting(c, audit.EventRequeue, "", "cause "+body.Cause+" topic "+body.Topic).Note
	n, err := g.outbox.RequeueAll(c.Request.Context(), outbox.Query{Cause: outbox.Cause(body.Cause), Topic: body.Topic}, body.Limit, note)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, wire.RequeuedEvents{Requeued: n, More: n == body.Limit})
}
