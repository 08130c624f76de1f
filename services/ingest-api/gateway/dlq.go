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

func (g *Gateway) deadLetterRoutes() []route {
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
func (g *Gateway) noDeadLetters() error {
	if g.deps.DeadLetters == nil {
		return problemf(codeNotFound, "this service has no dead letters")
	}
	return nil
}

// deadLetterView is a dead letter with what its row says now.
type deadLetterView struct {
	ID             string              `json:"id"`
	Source         dlq.Source          `json:"source"`
	TaskID         *string             `json:"taskId"` // null: a delivery that could not be read
	Fence          *int64              `json:"fence"`
	AttemptCount   int                 `json:"attemptCount"`
	LastError      string              `json:"lastError"`
	FailedAt       string              `json:"failedAt"`
	SourceStream   *string             `json:"sourceStream"`
	SourceGroup    *string             `json:"sourceGroup"`
	SourceRecordID *string             `json:"sourceRecordId"`
	Raw            map[string]blobView `json:"raw"`  // null: it could be read
	Task           *deadLetterTask     `json:"task"` // null: there is no such row
	Replayable     bool                `json:"replayable"`
	Reason         *dlq.Reason         `json:"reason"` // why not
	Why            *string             `json:"why"`    // in words
}

// deadLetterTask is a dead letter's row as it is now.
type deadLetterTask struct {
	Status taskstate.Status `json:"status"`
	Fence  int64            `json:"fence"`
}

func viewDeadLetter(l dlq.DeadLetter) deadLetterView {
	v := deadLetterView{
		ID: l.ID, Source: l.Source, TaskID: optional(l.TaskID), AttemptCount: l.AttemptCount, LastError: l.LastError, FailedAt: formatTime(l.FailedAt),
		SourceStream: optional(l.SourceStream), SourceGroup: optional(l.SourceGroup), SourceRecordID: optional(l.SourceRecordID),
		Replayable: l.Reason == "", Why: optional(l.Why),
	}
	if v.Raw = viewRaw(l.Raw); v.Raw == nil {
		v.Fence = &l.Fence
	}
	if l.Reason != "" {
		v.Reason = &l.Reason
	}
	if l.Status != taskstate.StatusNone {
		v.Task = &deadLetterTask{Status: l.Status, Fence: l.RowFence}
	}
	return v
}

func (g *Gateway) listDeadLetters(c *gin.Context) error {
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
	rows, next, err := g.deps.DeadLetters.List(c.Request.Context(), q, placeOf(from), limit)
	if err != nil {
		return err
	}
	out := list[deadLetterView]{Items: make([]deadLetterView, len(rows)), NextCursor: textOf(name, next), HasMore: next != nil}
	for i, l := range rows {
		out.Items[i] = viewDeadLetter(l)
	}
	return writeJSON(c, http.StatusOK, out)
}

// sourced sets the source, since cursors belong to one.
func (g *Gateway) sourced(q dlq.Query) dlq.Query {
	if q.Source == "" {
		q.Source = g.deps.DeadLetters.Default()
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
func textOf(name string, place *dlq.Cursor) *string {
	if place == nil {
		return nil
	}
	at := place.At
	if at.IsZero() {
		at = time.UnixMicro(0)
	}
	text := timeCursor(name, at, place.ID).encode()
	return &text
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

// deadLetterStatsView counts what waits for an operator.
type deadLetterStatsView struct {
	Source  dlq.Source `json:"source"`
	Entries int64      `json:"entries"`
	Dead    int64      `json:"dead"`
}

func (g *Gateway) deadLetterStats(c *gin.Context) error {
	if err := g.noDeadLetters(); err != nil {
		return err
	}
	s, err := g.deps.DeadLetters.Stats(c.Request.Context())
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, deadLetterStatsView{Source: s.Source, Entries: s.Entries, Dead: s.Dead})
}

// deadLetterID is the dead letter that the path names.
func (g *Gateway) deadLetterID(c *gin.Context) (string, error) {
	if err := g.noDeadLetters(); err != nil {
		return "", err
	}
	id := strings.ToLower(c.Param("letterId"))
	if id == "" || !harmlessID(id) {
		return "", dlq.ErrNotFound
	}
	return id, nil
}

func (g *Gateway) getDeadLetter(c *gin.Context) error {
	id, err := g.deadLetterID(c)
	if err != nil {
		return err
	}
	l, err := g.deps.DeadLetters.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewDeadLetter(l))
}

func (g *Gateway) replayDeadLetter(c *gin.Context) error {
	id, err := g.deadLetterID(c)
	if err != nil {
		return err
	}
	t, err := g.deps.DeadLetters.Replay(c.Request.Context(), g.acting(c, audit.DeadLetterReplay, id, ""), id)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewInspection(t))
}

func (g *Gateway) dropDeadLetter(c *gin.Context) error {
	id, err := g.deadLetterID(c)
	if err != nil {
		return err
	}
	if err := g.deps.DeadLetters.Drop(c.Request.Context(), g.dropping(c), id); err != nil {
		return err
	}
	return noContent(c)
}

// dropping notes each dropped letter by its death: fsck asks for that when it misses the entry.
func (g *Gateway) dropping(c *gin.Context) dlq.NoteFunc {
	if g.deps.Audit == nil {
		return nil
	}
	return func(l dlq.DeadLetter) taskstate.TxFunc {
		target := l.ID
		if l.Raw == nil {
			target = dlq.RowID(l.TaskID, l.Fence)
		}
		return g.deps.Audit.Note(audit.Event{Action: audit.DeadLetterDrop, Source: sourceOf(c), Target: target, Detail: "entry " + l.ID + ": " + l.LastError})
	}
}

// bulkBody is the wish to replay or drop many dead letters.
type bulkBody struct {
	Source dlq.Source `json:"source"`
	Task   string     `json:"task"`
	bulkWish
}

// bulkWish is what such wishes have in common, for the ingest queue and for topics.
type bulkWish struct {
	Error        string     `json:"error"`
	FailedAfter  *time.Time `json:"failedAfter"`
	FailedBefore *time.Time `json:"failedBefore"`
	All          bool       `json:"all"`
	Cursor       string     `json:"cursor"`
	Limit        int        `json:"limit"`
	PerSecond    int        `json:"perSecond"`
	DryRun       bool       `json:"dryRun"`
}

// bulkView says what one request did; with nextCursor there is more.
type bulkView struct {
	DryRun     bool           `json:"dryRun"`
	Replayed   *int           `json:"replayed,omitempty"`
	Dropped    *int           `json:"dropped,omitempty"`
	Skipped    map[string]int `json:"skipped"`
	Failed     int            `json:"failed"`
	Error      *string        `json:"error"` // the code of the first failure
	NextCursor *string        `json:"nextCursor"`
	HasMore    bool           `json:"hasMore"`
}

func (g *Gateway) replayDeadLetters(c *gin.Context) error {
	q, b, err := g.readBulk(c, false)
	if err != nil {
		return err
	}
	r, err := g.deps.DeadLetters.ReplayAll(c.Request.Context(), g.acting(c, audit.DeadLetterReplay, "", describeQuery(q)), q, b)
	if err != nil {
		return err
	}
	v := viewBulk(deadLetterList(q), b, r)
	v.Replayed = &r.Done
	return writeJSON(c, http.StatusOK, v)
}

func (g *Gateway) dropDeadLetters(c *gin.Context) error {
	q, b, err := g.readBulk(c, true)
	if err != nil {
		return err
	}
	r, err := g.deps.DeadLetters.DropAll(c.Request.Context(), g.dropping(c), q, b)
	if err != nil {
		return err
	}
	v := viewBulk(deadLetterList(q), b, r)
	v.Dropped = &r.Done
	return writeJSON(c, http.StatusOK, v)
}

func viewBulk(list string, b dlq.Bulk, r dlq.Result) bulkView {
	v := bulkView{DryRun: b.DryRun, Skipped: map[string]int{}, Failed: r.Failed, NextCursor: textOf(list, r.Next), HasMore: r.Next != nil}
	for why, n := range r.Skipped {
		v.Skipped[string(why)] = n
	}
	if r.Err != nil {
		v.Error = &classify(r.Err).code
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
		text += " after " + formatTime(q.FailedAfter)
	}
	if !q.FailedBefore.IsZero() {
		text += " before " + formatTime(q.FailedBefore)
	}
	return text
}

// readBulk reads the wish; a drop of everything has to say so.
func (g *Gateway) readBulk(c *gin.Context, drop bool) (q dlq.Query, b dlq.Bulk, err error) {
	if err := g.noDeadLetters(); err != nil {
		return q, b, err
	}
	var body bulkBody
	if err := readJSON(c, &body, true); err != nil {
		return q, b, err
	}
	if body.Source != "" && !slices.Contains(dlq.Sources(), body.Source) {
		return q, b, problemf(codeInvalidField, "source is %s, allowed are %s", shown(string(body.Source)), join(dlq.Sources())).about("source")
	}
	for name, text := range map[string]string{"task": body.Task, "error": body.Error} {
		if err := checkText(name, text, maxFilter, codeInvalidText, codeFieldTooLong); err != nil {
			return q, b, err
		}
	}
	q = g.sourced(dlq.Query{Source: body.Source, Task: strings.ToLower(body.Task), Text: body.Error})
	if q.FailedAfter, q.FailedBefore, err = body.span(); err != nil {
		return q, b, err
	}
	if drop && q == (dlq.Query{Source: q.Source}) {
		if err := body.saysAll(); err != nil {
			return q, b, err
		}
	}
	b, err = body.bounds(deadLetterList(q))
	return q, b, err
}

// span is when the dead letters died; zero: no bound.
func (w bulkWish) span() (after, before time.Time, err error) {
	if after, err = bodyTime("failedAfter", w.FailedAfter); err != nil {
		return after, before, err
	}
	before, err = bodyTime("failedBefore", w.FailedBefore)
	return after, before, err
}

// saysAll asks for a word from those who would drop every dead letter.
func (w bulkWish) saysAll() error {
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

// bounds are the limits of one request.
func (w bulkWish) bounds(name string) (b dlq.Bulk, err error) {
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
