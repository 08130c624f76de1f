package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

const (
	// bulkDefault and bulkMost bound the dead letters that one request looks at.
	bulkDefault, bulkMost = 200, 1000
	// paceDefault and paceMost bound the replays of a second.
	paceDefault, paceMost = 100, 1000
)

// DeadLetters is the service for dead letters of the ingest queue; *dlq.Service is one. Its errors are told there.
type DeadLetters interface {
	Default() dlq.Source
	Stats(ctx context.Context) (dlq.Stats, error)
	List(ctx context.Context, q dlq.Query, after *dlq.Cursor, limit int) ([]dlq.DeadLetter, *dlq.Cursor, error)
	Get(ctx context.Context, id string) (dlq.DeadLetter, error)
	Replay(ctx context.Context, c ingest.Caller, id string) (taskstate.Task, error)
	ReplayAll(ctx context.Context, c ingest.Caller, q dlq.Query, b dlq.Bulk) (dlq.Result, error)
	Drop(ctx context.Context, note dlq.NoteFunc, id string) error
	DropAll(ctx context.Context, note dlq.NoteFunc, q dlq.Query, b dlq.Bulk) (dlq.Result, error)
}

// deadLetters shows and mends dead letters of the ingest queue.
type deadLetters struct {
	service DeadLetters // nil: there are none
	trail   trail
}

// routes are the addresses.
func (g *deadLetters) routes() []route {
	const deadLetters = "/internal/dlq"
	const one = deadLetters + "/letters/:letterId"
	return []route{
		{http.MethodGet, deadLetters, accessInspect, []string{"source", "task", "error", "failedAfter", "failedBefore", "cursor", "limit"}, g.listDeadLetters},
		{http.MethodGet, deadLetters + "/stats", accessInspect, nil, g.deadLetterStats},
		{http.MethodPost, deadLetters + "/replay", accessOperate, nil, g.replayDeadLetters},
		{http.MethodPost, deadLetters + "/drop", accessOperate, nil, g.dropDeadLetters},
		{http.MethodGet, one, accessInspect, nil, g.getDeadLetter},
		{http.MethodDelete, one, accessOperate, nil, g.dropDeadLetter},
		{http.MethodPost, one + "/replay", accessOperate, nil, g.replayDeadLetter},
	}
}

// noDeadLetters returns where there is no desk.
func (g *deadLetters) noDeadLetters() error {
	if g.service == nil {
		return problemf(codeNotFound, "this service has no dead letters")
	}
	return nil
}

func viewDeadLetter(l dlq.DeadLetter) wire.DeadLetter {
	v := wire.DeadLetter{
		ID: l.ID, Source: string(l.Source), TaskID: wire.NullText(l.TaskID), AttemptCount: l.AttemptCount, LastError: l.LastError, FailedAt: wire.At(l.FailedAt),
		SourceStream: wire.NullText(l.SourceStream), SourceGroup: wire.NullText(l.SourceGroup), SourceRecordID: wire.NullText(l.SourceRecordID),
		Replayable: l.Reason == "", Reason: wire.NullText(l.Reason), Why: wire.NullText(l.Why),
	}
	if v.Raw = viewRaw(l.Raw); v.Raw == nil {
		v.Fence = &l.Fence
	}
	if l.Status != taskstate.StatusNone {
		v.Task = &wire.DeadTask{Status: l.Status, Fence: l.RowFence}
	}
	return v
}

func (g *deadLetters) listDeadLetters(c *gin.Context) error {
	if err := g.noDeadLetters(); err != nil {
		return err
	}
	q, err := deadLetterQuery(c)
	if err != nil {
		return err
	}
	q = g.sourced(q)
	name := deadLetterList(q)
	limit, from, err := pageParams(c, name)
	if err != nil {
		return err
	}
	rows, next, err := g.service.List(c.Request.Context(), q, placeOf(from), limit)
	if err != nil {
		return err
	}
	out := whole(rows, viewDeadLetter)
	out.NextCursor, out.HasMore = textOf(name, next), next != nil
	return writeJSON(c, http.StatusOK, out)
}

// sourced sets the source, since cursors belong to one.
func (g *deadLetters) sourced(q dlq.Query) dlq.Query {
	if q.Source == "" {
		q.Source = g.service.Default()
	}
	return q
}

// deadLetterList names the list that a cursor belongs to.
func deadLetterList(q dlq.Query) string { return "dlq:" + string(q.Source) }

// placeOf is a cursor's place; nil: the start.
func placeOf(c *cursor) *dlq.Cursor {
	if c == nil {
		return nil
	}
	return &dlq.Cursor{ID: c.id, At: time.UnixMicro(c.at).UTC()}
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
	return wire.NullText(timeCursor(name, at, place.ID).encode())
}

// deadLetterQuery reads the filters of a list.
func deadLetterQuery(c *gin.Context) (q dlq.Query, err error) {
	if q.Source, err = oneWord(c, "source", dlq.Sources()); err != nil {
		return q, err
	}
	if q.Task, err = textParam(c, "task"); err != nil {
		return q, err
	}
	q.Task = strings.ToLower(q.Task)
	if q.Text, err = textParam(c, "error"); err != nil {
		return q, err
	}
	if q.FailedAfter, err = timeParam(c, "failedAfter"); err != nil {
		return q, err
	}
	q.FailedBefore, err = timeParam(c, "failedBefore")
	return q, err
}

func (g *deadLetters) deadLetterStats(c *gin.Context) error {
	if err := g.noDeadLetters(); err != nil {
		return err
	}
	s, err := g.service.Stats(c.Request.Context())
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, wire.DeadLetterStats{Source: string(s.Source), Entries: s.Entries, Dead: s.Dead})
}

// deadLetterID is the dead letter that the path names.
func (g *deadLetters) deadLetterID(c *gin.Context) (string, error) {
	if err := g.noDeadLetters(); err != nil {
		return "", err
	}
	id := strings.ToLower(c.Param("letterId"))
	if id == "" || !harmlessID(id) {
		return "", dlq.ErrNotFound
	}
	return id, nil
}

func (g *deadLetters) getDeadLetter(c *gin.Context) error {
	id, err := g.deadLetterID(c)
	if err != nil {
		return err
	}
	l, err := g.service.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewDeadLetter(l))
}

func (g *deadLetters) replayDeadLetter(c *gin.Context) error {
	id, err := g.deadLetterID(c)
	if err != nil {
		return err
	}
	t, err := g.service.Replay(c.Request.Context(), g.trail.acting(c, audit.DeadLetterReplay, id, ""), id)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewInspection(t))
}

func (g *deadLetters) dropDeadLetter(c *gin.Context) error {
	id, err := g.deadLetterID(c)
	if err != nil {
		return err
	}
	if err := g.service.Drop(c.Request.Context(), g.dropping(c), id); err != nil {
		return err
	}
	return noContent(c)
}

// dropping notes each dropped letter by its death: fsck asks for that when it misses the entry.
func (g *deadLetters) dropping(c *gin.Context) dlq.NoteFunc {
	if g.trail.log == nil {
		return nil
	}
	return func(l dlq.DeadLetter) taskstate.TxFunc {
		target := l.ID
		if l.Raw == nil {
			target = dlq.RowID(l.TaskID, l.Fence)
		}
		return g.trail.log.Note(audit.Event{Action: audit.DeadLetterDrop, Source: sourceOf(c), Target: target, Detail: "entry " + l.ID + ": " + l.LastError})
	}
}

func (g *deadLetters) replayDeadLetters(c *gin.Context) error {
	q, b, err := g.readBulk(c, false)
	if err != nil {
		return err
	}
	r, err := g.service.ReplayAll(c.Request.Context(), g.trail.acting(c, audit.DeadLetterReplay, "", describeQuery(q)), q, b)
	if err != nil {
		return err
	}
	v := viewBulk(deadLetterList(q), b, r)
	v.Replayed = &r.Done
	return writeJSON(c, http.StatusOK, v)
}

func (g *deadLetters) dropDeadLetters(c *gin.Context) error {
	q, b, err := g.readBulk(c, true)
	if err != nil {
		return err
	}
	r, err := g.service.DropAll(c.Request.Context(), g.dropping(c), q, b)
	if err != nil {
		return err
	}
	v := viewBulk(deadLetterList(q), b, r)
	v.Dropped = &r.Done
	return writeJSON(c, http.StatusOK, v)
}

func viewBulk(list string, b dlq.Bulk, r dlq.Result) wire.BulkResult {
	v := wire.BulkResult{DryRun: b.DryRun, Skipped: map[string]int{}, Failed: r.Failed, NextCursor: textOf(list, r.Next), HasMore: r.Next != nil}
	for why, n := range r.Skipped {
		v.Skipped[string(why)] = n
	}
	if r.Err != nil {
		v.Error = wire.NullText(classify(r.Err).code)
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

// readBulk reads the wish; a drop of everything has to say so.
func (g *deadLetters) readBulk(c *gin.Context, drop bool) (q dlq.Query, b dlq.Bulk, err error) {
	if err := g.noDeadLetters(); err != nil {
		return q, b, err
	}
	var body wire.DeadLetterBulk
	if err := readJSON(c, &body, true); err != nil {
		return q, b, err
	}
	if body.Source != "" && !slices.Contains(dlq.Sources(), dlq.Source(body.Source)) {
		return q, b, problemf(codeInvalidField, "source is %s, allowed are %s", shown(body.Source), join(dlq.Sources())).about("source")
	}
	for name, text := range map[string]string{"task": body.Task, "error": body.Error} {
		if err := checkText(name, text, maxFilter, codeInvalidText, codeFieldTooLong); err != nil {
			return q, b, err
		}
	}
	q = g.sourced(dlq.Query{Source: dlq.Source(body.Source), Task: strings.ToLower(body.Task), Text: body.Error})
	if q.FailedAfter, q.FailedBefore, err = spanOf(body.Bulk); err != nil {
		return q, b, err
	}
	if drop && q == (dlq.Query{Source: q.Source}) {
		if err := saysAll(body.Bulk); err != nil {
			return q, b, err
		}
	}
	b, err = boundsOf(body.Bulk, deadLetterList(q))
	return q, b, err
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
	return problemf(codeInvalidField, "there is no filter: say all=true to drop every dead letter").about("all")
}

// bodyTime is an instant that databases can hold.
func bodyTime(name string, t *time.Time) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if t.Year() < 1970 || t.Year() > 9998 {
		return time.Time{}, problemf(codeInvalidField, "%s is in the year %d, allowed is 1970 to 9998", name, t.Year()).about(name)
	}
	return t.UTC(), nil
}

// boundsOf are the limits of one request.
func boundsOf(w wire.Bulk, name string) (b dlq.Bulk, err error) {
	b = dlq.Bulk{Limit: w.Limit, PerSecond: w.PerSecond, DryRun: w.DryRun}
	if b.Limit == 0 {
		b.Limit = bulkDefault
	}
	if b.PerSecond == 0 {
		b.PerSecond = paceDefault
	}
	if b.Limit < 1 || b.Limit > bulkMost {
		return b, problemf(codeInvalidField, "limit is %d, allowed is 1 to %d", b.Limit, bulkMost).about("limit")
	}
	if b.PerSecond < 1 || b.PerSecond > paceMost {
		return b, problemf(codeInvalidField, "perSecond is %d, allowed is 1 to %d", b.PerSecond, paceMost).about("perSecond")
	}
	if w.Cursor != "" {
		from, err := decodeCursor(w.Cursor, name)
		if err != nil {
			return b, err
		}
		b.After = placeOf(&from)
	}
	return b, nil
}
