package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	scanPage  = 200  // dead letters of one read
	maxLooked = 4000 // dead letters that one call looks at: a filter that fits few ends with a cursor, not with a long wait
)

// Application replays tasks with their documents; *operate.Operator is one.
type Application interface {
	// Operate decides on many tasks by f and writes what belongs to the changes.
	Operate(ctx context.Context, c ingest.Caller, ids []string, f func(taskstate.DBClock, taskstate.Task) taskstate.Decision) ([]taskstate.Outcome, error)
	// Refusals returns which replays would be refused, and why.
	Refusals(ctx context.Context, s taskstate.Scope, ids []string) (map[string]error, error)
}

// Deps are what a Service works with.
type Deps struct {
	Reader ingestq.DeadLetterReader // nil: there is no dead letter stream
	Raw    ingestq.DeadLetterReader // records of the DLQ topic that could not be read; nil: there is no Kafka
	Store  taskstate.Database
	App    Application
	Kafka  bool // the transport is Kafka
	Log    *slog.Logger
	Now    func() time.Time
	// Wait pauses between the steps of a rate-limited replay; nil: a timer.
	Wait func(ctx context.Context, d time.Duration) error
}

// Service serves operators: every row is in its reach, so ask for the role before. It is safe for concurrent use.
type Service struct{ d Deps }

// New makes a desk.
func New(d Deps) *Service {
	if d.Wait == nil {
		d.Wait = wait
	}
	return &Service{d}
}

// wait pauses for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	pause.For(ctx, d)
	return ctx.Err()
}

// Default is the transport's own source.
func (d *Service) Default() Source {
	switch {
	case d.d.Kafka:
		return SourceKafka
	case d.d.Reader != nil:
		return SourceRedis
	}
	return SourceTable
}

// Stats are counts of what waits for an operator.
type Stats struct {
	Source  Source
	Entries int64 // of the dead letter stream, those of replayed tasks too, or unreadable ones of the DLQ topic; 0 where there is none
	Dead    int64 // rows with status DEAD
}

// Stats counts. Errors: taskstate.ErrUnavailable, ingestq.ErrUnavailable.
func (d *Service) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Source: d.Default()}
	counts, err := d.d.Store.Counts(ctx, taskstate.System(), "")
	if err != nil {
		return s, fmt.Errorf("count dead tasks: %w", err)
	}
	s.Dead = counts[taskstate.StatusDead]
	reader := d.d.Reader
	if s.Source == SourceKafka {
		reader = d.d.Raw
	}
	if reader != nil {
		s.Entries, err = reader.Length(ctx)
	}
	return s, err
}

// List returns at most limit dead letters after a place (nil: from the newest on), with what their rows say now, and the place to
// go on from: nil at the end. It looks at a few thousand dead letters at most, so a page of a rare filter may be short or empty and
// have a next one. Errors: ErrNoStream, taskstate.ErrUnavailable, ingestq.ErrUnavailable.
func (d *Service) List(ctx context.Context, q Query, after *Cursor, limit int) ([]DeadLetter, *Cursor, error) {
	deadLetters, next, err := d.scan(ctx, q, after, limit)
	if err != nil {
		return nil, nil, err
	}
	return deadLetters, next, d.judge(ctx, deadLetters)
}

// Get returns one dead letter. Errors: ErrNotFound, ErrNoStream, taskstate.ErrUnavailable, ingestq.ErrUnavailable.
func (d *Service) Get(ctx context.Context, id string) (DeadLetter, error) {
	l, err := d.find(ctx, id)
	if err != nil {
		return DeadLetter{}, err
	}
	one := []DeadLetter{l}
	err = d.judge(ctx, one)
	return one[0], err
}

// find reads a dead letter without asking its row; a row's dead letter is made of the id alone, and its fields of the row if they fit.
func (d *Service) find(ctx context.Context, id string) (DeadLetter, error) {
	if task, fence, ok := parseRowID(id); ok {
		rows, err := d.d.Store.GetMany(ctx, taskstate.System(), []string{task})
		if err != nil {
			return DeadLetter{}, fmt.Errorf("read task %s: %w", task, err)
		}
		if len(rows) == 0 || rows[0].Fence < fence {
			return DeadLetter{}, fmt.Errorf("%s: %w", id, ErrNotFound)
		}
		l := deadLetterOfRow(rows[0], d.rows())
		if l.Fence != fence || rows[0].Status != taskstate.StatusDead {
			l.DeadLetter = ingestq.DeadLetter{TaskID: task, Fence: fence}
			l.ID = id
		}
		return l, nil
	}
	for _, b := range []struct {
		source Source
		reader ingestq.DeadLetterReader
	}{{SourceRedis, d.d.Reader}, {SourceKafka, d.d.Raw}} {
		if b.reader == nil {
			continue
		}
		stored, found, err := b.reader.DeadLetter(ctx, id)
		if err != nil {
			return DeadLetter{}, err
		}
		if found {
			return entryOf(stored, b.source), nil
		}
	}
	return DeadLetter{}, fmt.Errorf("%s: %w", id, ErrNotFound)
}

// entryOf is an entry as a dead letter.
func entryOf(l ingestq.StoredDeadLetter, source Source) DeadLetter {
	return DeadLetter{StoredDeadLetter: l, Source: source, at: Cursor{ID: l.ID, At: l.FailedAt}}
}

// rows is the source of dead letters that are rows.
func (d *Service) rows() Source {
	if d.d.Kafka {
		return SourceKafka
	}
	return SourceTable
}

// judge asks the rows of dead letters.
func (d *Service) judge(ctx context.Context, deadLetters []DeadLetter) error {
	var ids []string
	known := map[string]taskstate.Task{}
	for _, l := range deadLetters {
		if _, there := known[l.TaskID]; l.TaskID != "" && !there {
			known[l.TaskID] = taskstate.Task{}
			ids = append(ids, l.TaskID)
		}
	}
	refused := map[string]error{}
	if len(ids) > 0 {
		rows, err := d.d.Store.GetMany(ctx, taskstate.System(), ids)
		if err != nil {
			return fmt.Errorf("read the rows of %d dead letters: %w", len(ids), err)
		}
		var dead []string
		for _, t := range rows {
			known[t.ID] = t
			if t.Status == taskstate.StatusDead {
				dead = append(dead, t.ID)
			}
		}
		if len(dead) > 0 {
			if refused, err = d.d.App.Refusals(ctx, taskstate.System(), dead); err != nil {
				return fmt.Errorf("judge the rows of %d dead letters: %w", len(dead), err)
			}
		}
	}
	for i := range deadLetters {
		t := known[deadLetters[i].TaskID]
		deadLetters[i].judge(t, t.ID != "", refused[t.ID])
	}
	return nil
}

// scan pages through the dead letters of a source and keeps those that q wants; next is nil at the end.
func (d *Service) scan(ctx context.Context, q Query, after *Cursor, limit int) (list []DeadLetter, next *Cursor, err error) {
	read, err := d.reader(q)
	if err != nil {
		return nil, nil, err
	}
	for looked := 0; looked < maxLooked; {
		page, err := read(ctx, after)
		if err != nil {
			return nil, nil, err
		}
		for i, l := range page {
			after = &page[i].at
			if !q.wants(l) {
				continue
			}
			if list = append(list, l); len(list) == limit {
				if i+1 < len(page) || len(page) == scanPage {
					return list, after, nil
				}
				return list, nil, nil
			}
		}
		if len(page) < scanPage {
			return list, nil, nil
		}
		looked += len(page)
	}
	return list, after, nil
}

// readFunc reads a page of dead letters after a place.
type readFunc func(ctx context.Context, after *Cursor) ([]DeadLetter, error)

func (d *Service) reader(q Query) (readFunc, error) {
	source := q.Source
	if source == "" {
		source = d.Default()
	}
	if source != SourceRedis {
		return func(ctx context.Context, after *Cursor) ([]DeadLetter, error) { return d.byTime(ctx, q, source, after) }, nil
	}
	if d.d.Reader == nil {
		return nil, ErrNoStream
	}
	return func(ctx context.Context, after *Cursor) ([]DeadLetter, error) {
		return page(ctx, d.d.Reader, source, after)
	}, nil
}

// page is one of a reader's.
func page(ctx context.Context, reader ingestq.DeadLetterReader, source Source, after *Cursor) ([]DeadLetter, error) {
	var from Cursor
	if after != nil {
		from = *after
	}
	stored, err := reader.List(ctx, from, scanPage)
	out := make([]DeadLetter, len(stored))
	for i, l := range stored {
		out[i] = entryOf(l, source)
	}
	return out, err
}

// byTime is a page of the rows with status DEAD; with Kafka's records that could not be read among them.
func (d *Service) byTime(ctx context.Context, q Query, source Source, after *Cursor) (out []DeadLetter, err error) {
	if !q.droppable {
		if out, err = d.deadRows(ctx, q, source, after); err != nil {
			return nil, err
		}
	}
	if source != SourceKafka || d.d.Raw == nil || q.Task != "" {
		return out, nil
	}
	raw, err := page(ctx, d.d.Raw, source, after)
	if err != nil {
		return nil, err
	}
	out = append(out, raw...)
	slices.SortFunc(out, func(a, b DeadLetter) int {
		if ingestq.After(a.at, b.at) {
			return -1
		}
		return 1
	})
	return out[:min(len(out), scanPage)], nil
}

// deadRows is a page of the rows with status DEAD.
func (d *Service) deadRows(ctx context.Context, q Query, source Source, after *Cursor) ([]DeadLetter, error) {
	if q.Task != "" {
		rows, err := d.d.Store.GetMany(ctx, taskstate.System(), []string{q.Task})
		if err != nil || len(rows) == 0 || rows[0].Status != taskstate.StatusDead || after != nil {
			return nil, err
		}
		return []DeadLetter{deadLetterOfRow(rows[0], source)}, nil
	}
	list := taskstate.Query{
		Statuses: []taskstate.Status{taskstate.StatusDead}, Sort: taskstate.SortUpdatedDesc, Limit: scanPage,
		UpdatedAfter: q.FailedAfter, UpdatedBefore: q.FailedBefore,
	}
	if after != nil {
		list.After = &taskstate.Cursor{At: after.At, ID: after.ID}
	}
	page, err := d.d.Store.List(ctx, taskstate.System(), list)
	if err != nil {
		return nil, fmt.Errorf("list dead tasks: %w", err)
	}
	out := make([]DeadLetter, len(page.Tasks))
	for i, t := range page.Tasks {
		out[i] = deadLetterOfRow(t, source)
	}
	return out, nil
}

// Replay puts the dead letter's task back, exactly once, and returns it afterwards; its entry is then removed.
// Errors: ErrNotFound, ErrUnreadable, *StateError (the entry of a task that was replayed before is removed all the same),
// taskstate.ErrNotFound, ingest.ErrReplaySuperseded, ingest.ErrDocumentDeleted, taskstate.ErrUnavailable, ingestq.ErrUnavailable.
func (d *Service) Replay(ctx context.Context, c ingest.Caller, id string) (taskstate.Task, error) {
	l, err := d.find(ctx, id)
	if err != nil {
		return taskstate.Task{}, err
	}
	if l.Raw != nil {
		return taskstate.Task{}, fmt.Errorf("replay %s: %w", id, ErrUnreadable)
	}
	done, err := d.replay(ctx, c, []DeadLetter{l})
	if err != nil {
		return taskstate.Task{}, err
	}
	return done[0].task, done[0].err
}

// replayed is what became of one dead letter.
type replayed struct {
	task taskstate.Task
	err  error
}

// replay puts the tasks of dead letters back in one transaction, each if it is DEAD with its dead letter's fence, and removes the entries
// of those and of dead letters that are stale for good.
func (d *Service) replay(ctx context.Context, c ingest.Caller, deadLetters []DeadLetter) ([]replayed, error) {
	fences := map[string]map[int64]bool{} // by task: the stream may hold dead letters of several deaths
	var ids []string
	for _, l := range deadLetters {
		if fences[l.TaskID] == nil {
			fences[l.TaskID] = map[int64]bool{}
			ids = append(ids, l.TaskID)
		}
		fences[l.TaskID][l.Fence] = true
	}
	outcomes, err := d.d.App.Operate(ctx, c, ids, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		for fence := range fences[t.ID] {
			if stateOf(t, fence) == nil {
				return taskstate.Replay(m, t, c.Scope.Actor(), "replayed from the dead letter queue")
			}
		}
		return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerRefused, Err: &taskstate.RefusedError{Code: taskstate.CodeNotReplayable, Status: t.Status}}
	})
	if err != nil {
		return nil, fmt.Errorf("replay %d dead letters: %w", len(deadLetters), err)
	}
	crash.Point("dlq.after_replay")
	byTask := make(map[string]taskstate.Outcome, len(outcomes))
	for i, o := range outcomes {
		byTask[ids[i]] = o
	}
	out := make([]replayed, len(deadLetters))
	var done []DeadLetter
	for i, l := range deadLetters {
		var over bool
		if out[i], over = resultOf(l, byTask[l.TaskID]); over {
			done = append(done, l)
		}
	}
	d.tidy(ctx, done)
	return out, nil
}

// resultOf says what became of a dead letter, and whether its entry has served.
func resultOf(l DeadLetter, o taskstate.Outcome) (r replayed, over bool) {
	var state *StateError
	err := o.Err
	switch {
	case o.Before.ID == "":
		err = taskstate.ErrNotFound
	case err != nil:
	case errors.As(stateOf(o.Before, l.Fence), &state):
		err, over = state, state.stale()
	case o.Decision.Err != nil:
		err = o.Decision.Err
	default:
		return replayed{task: o.After}, true
	}
	return replayed{err: fmt.Errorf("replay %s: %w", l.ID, err)}, over
}

// tidy removes entries that have served. One that stays is shown as not replayable, and goes with the next try.
func (d *Service) tidy(ctx context.Context, deadLetters []DeadLetter) {
	var ids []string
	for _, l := range deadLetters {
		if l.Source == SourceRedis {
			ids = append(ids, l.ID)
		}
	}
	if len(ids) == 0 || d.d.Reader == nil {
		return
	}
	if _, err := d.d.Reader.Drop(ctx, ids...); err != nil {
		d.d.Log.WarnContext(ctx, "dlq: entries of replayed letters left behind", slog.Int("entries", len(ids)), slog.Any("error", err))
	}
}
