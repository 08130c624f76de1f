package operators

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
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

// Handler shows and mends the outbox, API keys and the audit log.
type Handler struct {
	Outbox   Outbox
	Settings []process.Effective // of this process
	Keys     KeyAdmin
	Trail    web.Trail
	Log      *slog.Logger
}

// Routes are the addresses.
func (g *Handler) Routes() []web.Route {
	const events = "/internal/outbox/events"
	const one = events + "/:eventId"
	box := []web.Route{
		web.On(http.MethodGet, "/internal/outbox", web.AccessWatch, nil, g.outboxStats),
		web.On(http.MethodPost, "/internal/outbox/requeue", web.AccessOperate, nil, g.requeueEvents),
		web.On(http.MethodGet, events, web.AccessWatch, []string{"state", "cause", "topic", "taskId", "cursor", "limit"}, g.listEvents),
		web.On(http.MethodGet, one, web.AccessInspect, nil, web.Of(g.event, g.getEvent)),
		web.On(http.MethodPost, one+"/requeue", web.AccessOperate, nil, web.Of(g.event, g.requeueEvent)),
	}
	if g.Outbox == nil {
		box = web.Without(box, "this service has no outbox")
	}
	log := []web.Route{
		web.On(http.MethodGet, "/internal/audit", web.AccessInspect, []string{"action", "actor", "cursor", "limit"}, g.listAudit),
	}
	if g.Trail.Log == nil {
		log = web.Without(log, "this service keeps no audit log")
	}
	settings := []web.Route{web.On(http.MethodGet, "/internal/settings", web.AccessWatch, nil, g.listSettings)}
	if g.Settings == nil {
		settings = web.Without(settings, "this service does not tell its settings")
	}
	keys := []web.Route{
		web.On(http.MethodGet, "/internal/keys", web.AccessInspect, []string{"cursor", "limit"}, g.listKeys),
		web.On(http.MethodPost, "/internal/keys", web.AccessOperate, nil, g.createKey),
		web.On(http.MethodDelete, "/internal/keys/:keyId", web.AccessOperate, nil, web.Of(web.ID("keyId", auth.ErrKeyNotFound), g.revokeKey)),
	}
	if g.Keys == nil {
		keys = web.Without(keys, "this service keeps no API keys (AUTH_MODE=none)")
	}
	return slices.Concat(box, log, keys, settings)
}

func (g *Handler) outboxStats(c *gin.Context) error {
	return web.Show(c, viewStats)(g.Outbox.Stats(c.Request.Context()))
}

func viewStats(s outbox.Stats) wire.OutboxStats {
	counts := map[string]int64{}
	for state, n := range s.Counts {
		counts[string(state)] = n
	}
	return wire.OutboxStats{Counts: counts, Backlog: s.Backlog(), OldestAgeSeconds: s.Oldest.Seconds()}
}

func viewOutboxEvent(e outbox.Item) wire.OutboxEvent {
	return wire.OutboxEvent{
		ID: e.ID, Topic: e.Topic, TaskID: e.Key, Status: string(e.Status), Cause: string(e.Cause), AttemptCount: e.AttemptCount,
		NextRetryAt: wire.MaybeAt(e.NextRetryAt), LastError: wire.NullText(e.LastError), CreatedAt: wire.At(e.CreatedAt), SentAt: wire.MaybeAt(e.SentAt),
	}
}

func (g *Handler) listEvents(c *gin.Context) error {
	q, err := eventQuery(c)
	if err != nil {
		return err
	}
	return web.List(c, "outbox:"+string(q.State), func(after *web.Cursor, most int) (rows []outbox.Item, err error) {
		if after != nil {
			if q.After, err = eventCursor(*after); err != nil {
				return nil, err
			}
		}
		q.Limit = most
		return g.Outbox.List(c.Request.Context(), q)
	}, viewOutboxEvent, cursorOfEvent)
}

// cursorOfEvent is the place of an event in a list; the time 0 stands for never.
func cursorOfEvent(e outbox.Item) web.Cursor {
	place := e.Cursor()
	at := int64(0)
	if !place.WakeAt.IsZero() {
		at = place.WakeAt.UnixMicro()
	}
	return web.Cursor{At: at, ID: views.ID(place.Seq)}
}

// eventCursor reads it back.
func eventCursor(c web.Cursor) (*outbox.Cursor, error) {
	seq, err := strconv.ParseInt(c.ID, 10, 64)
	if err != nil || seq < 1 || c.At < 0 || c.At > LatestEvent {
		return nil, web.BadCursor()
	}
	out := &outbox.Cursor{Seq: seq}
	if c.At > 0 {
		out.WakeAt = time.UnixMicro(c.At).UTC()
	}
	return out, nil
}

// LatestEvent is the last moment that every database can hold.
var LatestEvent = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()

// eventQuery reads the filters of a list: DEAD events, unless a state or a task is named.
func eventQuery(c *gin.Context) (outbox.Query, error) {
	p := web.ParamsOf(c)
	q := outbox.Query{
		State: web.Word(p, "state", []outbox.Status{outbox.StatusNew, outbox.StatusRetrying, outbox.StatusSent, outbox.StatusDead}),
		Cause: web.Word(p, "cause", []outbox.Cause{outbox.CauseNone, outbox.CauseUnavailable, outbox.CauseRefused}),
		Topic: p.Text("topic"), Task: p.Text("taskId"),
	}
	if q.State == "" && q.Task == "" {
		q.State = outbox.StatusDead
	}
	return q, p.Err()
}

func (g *Handler) getEvent(c *gin.Context, e outbox.Item) error {
	return web.JSON(c, http.StatusOK, wire.OneOutboxEvent{OutboxEvent: viewOutboxEvent(e), Payload: e.Payload})
}

// event reads the event that the path names.
func (g *Handler) event(c *gin.Context) (outbox.Item, error) {
	id, err := web.ID("eventId", outbox.ErrNotFound)(c)
	if err != nil {
		return outbox.Item{}, err
	}
	return g.Outbox.Get(c.Request.Context(), id)
}

func (g *Handler) requeueEvent(c *gin.Context, e outbox.Item) error {
	if err := g.Outbox.Requeue(c.Request.Context(), e.ID, g.Trail.Acting(c, audit.EventRequeue, e.ID, e.LastError).Note); err != nil {
		return err
	}
	return web.Show(c, viewOutboxEvent)(g.event(c))
}

func (g *Handler) requeueEvents(c *gin.Context) error {
	var body wire.RequeueEvents
	if err := web.ReadJSON(c, &body, true); err != nil {
		return err
	}
	if !slices.Contains([]outbox.Cause{"", outbox.CauseUnavailable, outbox.CauseRefused}, outbox.Cause(body.Cause)) {
		return web.Errorf(web.CodeInvalidField, "cause is %s, allowed are BROKER_UNAVAILABLE and REFUSED", web.Shown(body.Cause)).About("cause")
	}
	if err := ingest.CheckText("topic", body.Topic, web.MaxFilter); err != nil {
		return err
	}
	body.Limit = cmp.Or(body.Limit, requeueDefault)
	if err := web.Within("limit", body.Limit, 1, requeueMost); err != nil {
		return err
	}
	note := g.Trail.Acting(c, audit.EventRequeue, "", "cause "+body.Cause+" topic "+body.Topic).Note
	q := outbox.Query{Cause: outbox.Cause(body.Cause), Topic: body.Topic}
	view := func(n int) wire.RequeuedEvents { return wire.RequeuedEvents{Requeued: n, More: n == body.Limit} }
	return web.Show(c, view)(g.Outbox.RequeueAll(c.Request.Context(), q, body.Limit, note))
}

// listSettings shows the settings of this process, secrets hidden.
func (g *Handler) listSettings(c *gin.Context) error {
	return web.JSON(c, http.StatusOK, web.Whole(g.Settings, func(e process.Effective) wire.Setting {
		return wire.Setting{Name: e.Name, Value: e.Value, Default: e.Default, Allowed: e.Allowed, Meaning: e.Meaning, Changed: e.Changed()}
	}))
}
