package pipeline

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Documents that reach their rows at about the same time share a transaction, as long as it keeps to the bounds of one, and
// go on to the vector store together, whose requests are the cheaper the fuller they are.
const (
	rowsWorkers       = 2
	rowsMinConcurrent = 24 // documents
	rowsMost          = 64
	// rowsGather is how long a document waits for others that are still read or embedded: a transaction of its own costs the
	// database more than its rows do. With nothing before it in this process it waits for nobody.
	rowsGather = 120 * time.Millisecond
)

// rowTask is one run's part of a row transaction: the rows from–to of its plan.
type rowTask struct {
	w        *rowWriter
	first    bool // it also removes what the plan does not hold
	from, to int
	bytes    int
	rows     []ingest.Segment
	index    *textindex.Batch // of all rows

	// Answered.
	err   error
	found standing
	drop  []catalog.NamedRow
}

// standing is what a holder finds when it opens a transaction.
type standing struct {
	visible string // id of the visible version; empty: none
	model   string // of the version's rows so far; empty: none are complete
	where   string // the collection that its vectors were written to
	rows    bool   // an earlier transaction has left rows
	garbage bool   // an earlier run has dropped rows, whose vectors may come back
}

// last reports whether the version is complete with this part.
func (t *rowTask) last() bool { return t.to == len(t.w.plan.items) }

// rowTransaction is one transaction of several runs.
type rowTransaction struct {
	a  *Worker
	tx taskstate.Tx
	m  taskstate.DBClock
}

// arrive notes that the run is before its rows no more; who waits for it there goes on.
func (r *run) arrive() {
	if !r.arrived {
		r.arrived = true
		r.w.before.Add(-1)
	}
}

// rowsTogether writes as many parts as fit into one transaction; the others lead the next one.
func (w *Worker) rowsTogether(ctx context.Context, b *batcher.Batch[*rowTask]) error {
	var tasks []*rowTask
	var claims []taskstate.ClaimedTask
	rows, bytes := 0, 0
	for i, t := range b.Items() {
		id := t.w.r.job.Task.ID
		again := slices.ContainsFunc(claims, func(c taskstate.ClaimedTask) bool { return c.TaskID == id }) // one of them has lost its claim
		if i > 0 && (again || rows+t.to-t.from > rowsPerTx || bytes+t.bytes > bytesPerTx) {
			b.Requeue(i)
			continue
		}
		tasks, rows, bytes = append(tasks, t), rows+t.to-t.from, bytes+t.bytes
		claims = append(claims, taskstate.ClaimedTask{TaskID: id, Token: t.w.r.job.Token})
	}
	err := w.d.Store.WithClaims(ctx, claims, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, held []bool) error {
		return (&rowTransaction{a: w, tx: tx, m: m}).write(ctx, tasks, held)
	})
	if err != nil {
		return err
	}
	b.Release()
	w.confirmRows(ctx, tasks)
	return nil
}

// write is the inside of the transaction. It may run again from its start, so what it returns begins anew; a part that is
// refused has written nothing.
func (x *rowTransaction) write(ctx context.Context, tasks []*rowTask, held []bool) error {
	var wanted []*rowTask
	for i, t := range tasks {
		t.err, t.found, t.drop = nil, standing{}, nil
		if !held[i] {
			t.err = taskstate.ErrLost
			continue
		}
		wanted = append(wanted, t)
	}
	if err := x.guard(ctx, wanted); err != nil {
		return err
	}
	for _, t := range going(wanted) {
		if err := x.look(ctx, t); err != nil {
			return err
		}
	}
	wanted = going(wanted)
	for _, t := range wanted {
		if err := x.clean(ctx, t); err != nil {
			return err
		}
	}
	if err := x.insert(ctx, wanted); err != nil {
		return err
	}
	if err := crash.Fault("worker.in_rows"); err != nil {
		return err
	}
	return x.built(ctx, wanted)
}

// going are the parts that are still to be written.
func going(tasks []*rowTask) []*rowTask {
	return slices.DeleteFunc(slices.Clone(tasks), func(t *rowTask) bool { return t.err != nil })
}

// guard locks the documents and tells whether each version is still wanted, and how it stands. What belongs to a version
// changes only under the lock of its task, which the holder has, so it is read without a lock.
func (x *rowTransaction) guard(ctx context.Context, tasks []*rowTask) error {
	documents, versions := make([]string, len(tasks)), make([]string, len(tasks))
	for i, t := range tasks {
		documents[i], versions[i] = t.w.r.work.document, t.w.r.work.version
	}
	locked, err := x.a.cat.LockDocuments(ctx, x.tx, documents)
	if err != nil {
		return err
	}
	states, err := x.states(ctx, versions)
	if err != nil {
		return fmt.Errorf("read open versions: %w", err)
	}
	for _, t := range tasks {
		w := t.w.r.work
		d, alive := locked[w.document]
		s, known := states[w.version]
		t.found = s.standing
		t.found.visible = d.Visible
		switch {
		case !alive || d.Deleted:
			t.err = unwanted(taskstate.ReasonDeleted)
		case d.VisibleUpload > w.uploadNo:
			t.err = unwanted(taskstate.ReasonSuperseded)
		case !known || s.state != catalog.VersionBuilding:
			t.err = ingest.Permanent(ingest.CodeInternal, remedyMissing, "version %s is %s, not BUILDING", w.version, s.state)
		}
	}
	return nil
}

// versionStands is how a version stands.
type versionStands struct {
	standing
	state catalog.VersionState
}

// states reads how versions stand, by id.
func (x *rowTransaction) states(ctx context.Context, versions []string) (map[string]versionStands, error) {
	out := make(map[string]versionStands, len(versions))
	return out, x.a.cat.List(ctx, x.tx, "VersionsStand", versions, func(rows *sql.Rows) error {
		var id string
		var s versionStands
		err := rows.Scan(&id, &s.state, &s.model, &s.where, &s.rows, &s.garbage)
		out[strings.TrimSpace(id)] = s
		return err
	})
}

// look finds what stands of the version and makes sure, under the document's lock, that vectors to be used again still belong
// to the visible version (design D8); else the run plans again. It writes nothing.
func (x *rowTransaction) look(ctx context.Context, t *rowTask) error {
	w := t.w
	if t.first {
		w.have, w.stored = make([]bool, len(w.plan.items)), make([]bool, len(w.plan.items))
		w.forget, w.stood = t.found.garbage, t.found.rows
		if t.found.rows {
			var err error
			if t.drop, err = w.ownRows(ctx, x.tx); err != nil {
				return fmt.Errorf("read the version's rows: %w", err)
			}
			w.forget = w.forget || len(t.drop) > 0
		}
	}
	if t.found.visible == w.plan.visible {
		return nil // rows of a visible version are never removed
	}
	var ids []string
	for i := t.from; i < t.to; i++ {
		if p := w.plan.items[i]; p.birth != w.r.work.version && !w.have[i] {
			ids = append(ids, p.vector)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	held, err := sqldb.Texts(ctx, x.tx, x.a.q.List("RowsOfVersionHold", len(ids)), append([]any{t.found.visible}, sqldb.Args(ids)...)...)
	if err != nil {
		return fmt.Errorf("check vectors to be used again: %w", err)
	}
	if len(held) < len(ids) {
		t.err = errReplan
	}
	return nil
}

// clean removes the version's rows that the plan does not hold and names their vectors as garbage.
// Marks of vectors that another model made, or that lie in another collection, are taken away.
func (x *rowTransaction) clean(ctx context.Context, t *rowTask) error {
	if !t.first || !t.found.rows {
		return nil
	}
	w := t.w.r.work
	if err := x.a.cat.DropRows(ctx, x.tx, w.base, w.document, t.drop, x.m.Now); err != nil {
		return err
	}
	if t.found.model == "" || t.found.model == t.w.r.embedder.Model().Key && strings.TrimSpace(t.found.where) == w.collection {
		return nil
	}
	clear(t.w.stored)
	if _, err := x.tx.ExecContext(ctx, x.a.q.Get("RowsUnstored"), w.version); err != nil {
		return fmt.Errorf("forget vectors of model %s: %w", t.found.model, err)
	}
	return nil
}

// insert writes the rows that do not stand yet.
func (x *rowTransaction) insert(ctx context.Context, tasks []*rowTask) error {
	var params []any
	var again []string
	var indexes []*textindex.Batch
	n := 0
	for _, t := range tasks {
		w, before := t.w, n
		for i, s := range t.rows {
			p := w.plan.items[t.from+i]
			if w.have[t.from+i] {
				continue
			}
			path, err := json.Marshal(append([]string{}, s.HeadingPath...))
			if err != nil {
				return fmt.Errorf("heading path of segment %d: %w", s.Index, err)
			}
			breaks, err := json.Marshal(append([][2]int{}, s.PageBreaks...))
			if err != nil {
				return fmt.Errorf("page breaks of segment %d: %w", s.Index, err)
			}
			params = append(params, w.r.work.document, w.r.work.version, w.r.work.no, s.Index, s.Text, w.r.spool.items[t.from+i].hash.String(),
				p.vector, p.birth, s.Page, string(breaks), string(path), s.ByteStart, s.ByteEnd, s.Tokens, index(s.Around, 0), index(s.Around, 1))
			if n++; w.forget {
				again = append(again, p.vector)
			}
		}
		switch n - before {
		case 0:
		case len(t.rows):
			indexes = append(indexes, t.index)
		default:
			indexes = append(indexes, t.indexOf(func(i int) bool { return !w.have[i] }))
		}
	}
	if len(again) > 0 {
		if _, err := x.tx.ExecContext(ctx, x.a.q.List("GarbageForget", len(again)), sqldb.Args(again)...); err != nil {
			return fmt.Errorf("name vectors by their rows again: %w", err)
		}
	}
	if n == 0 {
		return nil
	}
	if _, err := x.tx.ExecContext(ctx, x.a.q.Rows("SegmentInsert", n), params...); err != nil {
		return err
	}
	return x.a.index.Add(ctx, x.tx, x.m.Now, indexes...)
}

// index is an end of a segment's Around for its column; nil: it has none.
func index(around [2]int, end int) any {
	if around == ([2]int{}) {
		return nil
	}
	return around[end]
}

// built notes with the last rows of versions what they are made of, and with what.
func (x *rowTransaction) built(ctx context.Context, tasks []*rowTask) error {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(t *rowTask) bool { return !t.last() })
	if len(tasks) == 0 {
		return nil
	}
	a := x.a
	params := []any{x.m.Now}
	var ids []string
	for _, t := range tasks {
		ids = append(ids, t.w.r.work.version)
	}
	for _, value := range []func(t *rowTask) any{
		func(t *rowTask) any { return t.w.r.embedder.Model().Key },
		func(t *rowTask) any { return t.w.r.work.collection },
		func(t *rowTask) any { return short(t.w.r.found.Reader) },
		func(t *rowTask) any { return short(a.d.Splitter.Fingerprint(t.w.r.work.chunking)) },
		func(t *rowTask) any { return t.w.r.dim },
		func(t *rowTask) any { return len(t.w.plan.items) },
		func(t *rowTask) any { return t.w.r.found.Pages },
		func(t *rowTask) any { return t.w.r.title() },
	} {
		for i, t := range tasks {
			params = append(params, ids[i], value(t))
		}
	}
	_, err := x.tx.ExecContext(ctx, strings.ReplaceAll(a.q.List("VersionsBuilt", len(ids)), "@cases", strings.Repeat(" WHEN ? THEN ?", len(ids))),
		append(params, sqldb.Args(ids)...)...)
	return err
}
