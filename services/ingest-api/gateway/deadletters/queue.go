// Package deadletters has the routes of dead letters, of the ingest queue and of topics.
package deadletters

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	// bulkDefault and bulkMost bound the dead letters that one request looks at.
	bulkDefault, bulkMost = 200, 1000
	// paceDefault and paceMost bound the replays of a second.
	paceDefault, paceMost = 100, 1000
)

// Service is the service for dead letters of the ingest queue; *dlq.Service is one. Its errors are told there.
type Service interface {
	Default() dlq.Source
	Stats(ctx context.Context) (dlq.Stats, error)
	List(ctx context.Context, q dlq.Query, after *dlq.Cursor, limit int) ([]dlq.DeadLetter, *dlq.Cursor, error)
	Get(ctx context.Context, id string) (dlq.DeadLetter, error)
	Replay(ctx context.Context, c ingest.Caller, id string) (taskstate.Task, error)
	ReplayAll(ctx context.Context, c ingest.Caller, q dlq.Query, b dlq.Bulk) (dlq.Result, error)
	Drop(ctx context.Context, note dlq.NoteFunc, id string) error
	DropAll(ctx context.Context, note dlq.NoteFunc, q dlq.Query, b dlq.Bulk) (dlq.Result, error)
}

// Handler shows and mends dead letters of the ingest queue.
type Handler struct {
	Service Service // nil: there are none
	Trail   web.Trail
}

// Routes are the addresses.
func (g *Handler) Routes() []web.Route {
	const deadLetters = "/internal/dlq"
	const one = deadLetters + "/letters/:letterId"
	routes := []web.Route{
		web.On(http.MethodGet, deadLetters, web.AccessInspect, []string{"source", "task", "error", "failedAfter", "failedBefore", "cursor", "limit"}, g.listDeadLetters),
		web.On(http.MethodGet, deadLetters+"/stats", web.AccessWatch, nil, g.deadLetterStats),
		web.On(http.MethodPost, deadLetters+"/replay", web.AccessOperate, nil, g.bulk(false)),
		web.On(http.MethodPost, deadLetters+"/drop", web.AccessOperate, nil, g.bulk(true)),
		web.On(http.MethodGet, one, web.AccessInspect, nil, web.Of(letterID, g.getDeadLetter)),
		web.On(http.MethodDelete, one, web.AccessOperate, []string{"reason"}, web.Of(letterID, g.dropDeadLetter)),
		web.On(http.MethodPost, one+"/replay", web.AccessOperate, nil, web.Of(letterID, g.replayDeadLetter)),
	}
	if g.Service == nil {
		return web.Without(routes, "this service has no dead letters")
	}
	return routes
}

func viewDeadLetter(l dlq.DeadLetter) wire.DeadLetter {
	v := wire.DeadLetter{
		ID: l.ID, Source: string(l.Source), TaskID: wire.NullText(l.TaskID), AttemptCount: l.AttemptCount, LastError: l.LastError, FailedAt: wire.At(l.FailedAt),
		SourceStream: wire.NullText(l.SourceStream), SourceGroup: wire.NullText(l.SourceGroup), SourceRecordID: wire.NullText(l.SourceRecordID),
		Replayable: l.Reason == "", Reason: wire.NullText(l.Reason), Why: wire.NullText(l.Why),
	}
	if v.Raw = views.Raw(l.Raw); v.Raw == nil {
		v.Fence = &l.Fence
	}
	if l.Status != taskstate.StatusNone {
		v.Task = &wire.DeadTask{Status: l.Status, Fence: l.RowFence}
	}
	return v
}

func (g *Handler) listDeadLetters(c *gin.Context) error {
	q, err := deadLetterQuery(c)
	if err != nil {
		return err
	}
	q = g.sourced(q)
	name := deadLetterList(q)
	p := web.ParamsOf(c)
	limit, from := p.Page(name)
	if p.Err() != nil {
		return p.Err()
	}
	rows, next, err := g.Service.List(c.Request.Context(), q, placeOf(from), limit)
	if err != nil {
		return err
	}
	out := web.Whole(rows, viewDeadLetter)
	out.NextCursor, out.HasMore = textOf(name, next), next != nil
	return web.JSON(c, http.StatusOK, out)
}

// sourced sets the source, since cursors belong to one.
func (g *Handler) sourced(q dlq.Query) dlq.Query {
	if q.Source == "" {
		q.Source = g.Service.Default()
	}
	return q
}

// deadLetterList names the list that a cursor belongs to.
func deadLetterList(q dlq.Query) string { return "dlq:" + string(q.Source) }

// placeOf is a cursor's place; nil: the start.
func placeOf(c *web.Cursor) *dlq.Cursor {
	if c == nil {
		return nil
	}
	return &dlq.Cursor{ID: c.ID, At: time.UnixMicro(c.At).UTC()}
}

// textOf is a place as a cursor; nil: the end.
func textOf(name string, place *dlq.Cursor) wire.NullText {
	if place == nil {
		return ""
	}
	at := place.At
	if at.IsZero() {
		at = time.UnixMicro(0)
	}
	return wire.NullText(web.Cursor{List: name, At: at.UnixMicro(), ID: place.ID}.Encode())
}

// deadLetterQuery reads the filters of a list.
func deadLetterQuery(c *gin.Context) (dlq.Query, error) {
	p := web.ParamsOf(c)
	return dlq.Query{
		Source: web.Word(p, "source", dlq.Sources()), Task: strings.ToLower(p.Text("task")), Text: p.Text("error"),
		FailedAfter: p.Time("failedAfter"), FailedBefore: p.Time("failedBefore"),
	}, p.Err()
}

func (g *Handler) deadLetterStats(c *gin.Context) error {
	return web.Show(c, func(s dlq.Stats) wire.DeadLetterStats {
		return wire.DeadLetterStats{Source: string(s.Source), Entries: s.Entries, Dead: s.Dead}
	})(g.Service.Stats(c.Request.Context()))
}

// letterID finds the dead letter that the path names.
func letterID(c *gin.Context) (string, error) {
	id := strings.ToLower(c.Param("letterId"))
	if id == "" || !web.HarmlessID(id) {
		return "", dlq.ErrNotFound
	}
	return id, nil
}

func (g *Handler) getDeadLetter(c *gin.Context, id string) error {
	return web.Show(c, viewDeadLetter)(g.Service.Get(c.Request.Context(), id))
}

func (g *Handler) replayDeadLetter(c *gin.Context, id string) error {
	return web.Show(c, views.Inspection)(g.Service.Replay(c.Request.Context(), g.Trail.Acting(c, audit.DeadLetterReplay, id, ""), id))
}

func (g *Handler) dropDeadLetter(c *gin.Context, id string) error {
	p := web.ParamsOf(c)
	note := g.dropping(c, p.Text("reason"))
	if p.Err() != nil {
		return p.Err()
	}
	return web.NoContent(c, g.Service.Drop(c.Request.Context(), note, id))
}

// because puts an operator's own words before what the audit log says of a step by itself.
func because(reason, detail string) string {
	if reason == "" {
		return detail
	}
	return strings.TrimSpace("reason " + strconv.Quote(reason) + " " + detail)
}

// dropping notes each dropped letter by its death: fsck asks for that when it misses the entry.
func (g *Handler) dropping(c *gin.Context, reason string) dlq.NoteFunc {
	if g.Trail.Log == nil {
		return nil
	}
	return func(l dlq.DeadLetter) taskstate.TxFunc {
		target := l.ID
		if l.Raw == nil {
			target = dlq.RowID(l.TaskID, l.Fence)
		}
		detail := because(reason, "entry "+l.ID+": "+l.LastError)
		return g.Trail.Log.Note(audit.Event{Action: audit.DeadLetterDrop, Source: web.Source(c), Target: target, Detail: detail})
	}
}

// bulk replays or drops the dead letters that the body selects.
func (g *Handler) bulk(drop bool) web.HandlerFunc {
	return func(c *gin.Context) error {
		q, b, why, err := g.readBulk(c, drop)
		if err != nil {
			return err
		}
		var r dlq.Result
		if drop {
			r, err = g.Service.DropAll(c.Request.Context(), g.dropping(c, why), q, b)
		} else {
			r, err = g.Service.ReplayAll(c.Request.Context(), g.Trail.Acting(c, audit.DeadLetterReplay, "", because(why, describeQuery(q))), q, b)
		}
		if err != nil {
			return err
		}
		return web.JSON(c, http.StatusOK, viewBulk(deadLetterList(q), b, r, drop))
	}
}

func viewBulk(list string, b dlq.Bulk, r dlq.Result, drop bool) wire.BulkResult {
	v := wire.BulkResult{DryRun: b.DryRun, Skipped: map[string]int{}, Failed: r.Failed, NextCursor: textOf(list, r.Next), HasMore: r.Next != nil}
	if drop {
		v.Dropped = &r.Done
	} else {
		v.Replayed = &r.Done
	}
	for why, n := range r.Skipped {
		v.Skipped[string(why)] = n
	}
	if r.Err != nil {
		v.Error = wire.NullText(web.Classify(r.Err).Code)
	}
	return v
}

// describeQuery is a filter for the audit log.
func describeQuery(q dlq.Query) string {
	text := ""
	if q.Source != "" {
		text = "source " + string(q.Source)
	}
	for _, f := range [][2]string{{"task", q.Task}, {"error", q.Text}} {
		if f[1] != "" {
			text += " " + f[0] + " " + f[1]
		}
	}
	if !q.FailedAfter.IsZero() {
		text += " after " + wire.At(q.FailedAfter).Text()
	}
	if !q.FailedBefore.IsZero() {
		text += " before " + wire.At(q.FailedBefore).Text()
	}
	return text
}

// readBulk reads the wish and the reason for it; a drop of everything has to say so.
func (g *Handler) readBulk(c *gin.Context, drop bool) (q dlq.Query, b dlq.Bulk, why string, err error) {
	var body wire.DeadLetterBulk
	if err := web.ReadJSON(c, &body, true); err != nil {
		return q, b, "", err
	}
	if body.Source != "" && !slices.Contains(dlq.Sources(), dlq.Source(body.Source)) {
		return q, b, "", web.Errorf(web.CodeInvalidField, "source is %s, allowed are %s", web.Shown(body.Source), web.Join(dlq.Sources())).About("source")
	}
	for name, text := range map[string]string{"task": body.Task, "error": body.Error, "reason": body.Reason} {
		if err := ingest.CheckText(name, text, web.MaxFilter); err != nil {
			return q, b, "", err
		}
	}
	q = g.sourced(dlq.Query{Source: dlq.Source(body.Source), Task: strings.ToLower(body.Task), Text: body.Error})
	if q.FailedAfter, q.FailedBefore, err = spanOf(body.Bulk); err != nil {
		return q, b, "", err
	}
	if drop && q == (dlq.Query{Source: q.Source}) {
		if err := saysAll(body.Bulk); err != nil {
			return q, b, "", err
		}
	}
	b, err = boundsOf(body.Bulk, deadLetterList(q))
	return q, b, strings.TrimSpace(body.Reason), err
}

// spanOf is when the dead letters died; zero: no bound.
func spanOf(w wire.Bulk) (after, before time.Time, err error) {
	if after, err = bodyTime("failedAfter", w.FailedAfter); err != nil {
		return after, before, err
	}
	before, err = bodyTime("failedBefore", w.FailedBefore)
	return after, before, err
}

// saysAll asks for a word from those who would drop every dead letter.
func saysAll(w wire.Bulk) error {
	if w.All {
		return nil
	}
	return web.Errorf(web.CodeInvalidField, "there is no filter: say all=true to drop every dead letter").About("all")
}

// bodyTime is an instant that databases can hold.
func bodyTime(name string, t *time.Time) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if t.Year() < 1970 || t.Year() > 9998 {
		return time.Time{}, web.Errorf(web.CodeInvalidField, "%s is in the year %d, allowed is 1970 to 9998", name, t.Year()).About(name)
	}
	return t.UTC(), nil
}

// boundsOf are the limits of one request.
func boundsOf(w wire.Bulk, name string) (b dlq.Bulk, err error) {
	b = dlq.Bulk{Limit: cmp.Or(w.Limit, bulkDefault), PerSecond: cmp.Or(w.PerSecond, paceDefault), DryRun: w.DryRun}
	if err := cmp.Or(web.Within("limit", b.Limit, 1, bulkMost), web.Within("perSecond", b.PerSecond, 1, paceMost)); err != nil {
		return b, err
	}
	if w.Cursor != "" {
		from, err := web.DecodeCursor(w.Cursor, name)
		if err != nil {
			return b, err
		}
		b.After = placeOf(&from)
	}
	return b, nil
}
