package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/mutant"
)

const (
	rowsPerTx  = 500     // design D8
	bytesPerTx = 4 << 20 // of text: below every server's statement limit
)

// rowWriter writes a run's segment rows in transactions of the holder.
type rowWriter struct {
	r      *run
	have   []bool // rows of this version that stand already, by index
	stored []bool // and whose vector an earlier attempt has marked as written
	forget bool   // vector_garbage may name an id that comes back
}

// writeRows makes the rows of the version what the plan says, in transactions that the holder's predicate and the document's lock open.
// Another reason than DONE says why the version is not wanted any more. errReplan when a vector to be re-used is gone.
func (r *run) writeRows(ctx context.Context) (taskstate.Reason, error) {
	w := &rowWriter{r: r}
	n := len(r.plan.items)
	for from, first := 0, true; first || from < n; first = false {
		to, bytes := r.rowsUpTo(from)
		reason, err := w.write(ctx, first, from, to, bytes)
		if err != nil {
			return "", fmt.Errorf("write segments %d–%d of %d: %w", from+1, to, n, err)
		}
		if reason != taskstate.ReasonDone {
			return reason, nil
		}
		crash.Point("worker.after_rows")
		from = to
		r.report(taskstate.StageIndex, within(percentEmbed, percentRows, to, n), 0, n)
	}
	return taskstate.ReasonDone, r.confirmRows(ctx)
}

// confirmRows reads the version's rows back, so that only vectors are written whose row was really committed (design D8),
// and notes which ones an earlier attempt has written.
func (r *run) confirmRows(ctx context.Context) error {
	w := &rowWriter{r: r}
	drop, err := read(ctx, r.a.d.Store, w.ownRows)
	if err != nil {
		return fmt.Errorf("read the version's rows back: %w", err)
	}
	for i, there := range w.have {
		if !there || len(drop) > 0 {
			return Transient(CodeInternal, "the rows of version %s are not those that were written: segment %d, %d foreign ones", r.work.version, i, len(drop))
		}
	}
	r.plan.stored = w.stored
	return nil
}

// rowsUpTo is the end of the transaction's rows that begin at from, and how much text they have.
func (r *run) rowsUpTo(from int) (to, bytes int) {
	for i := from; i < len(r.plan.items); i++ {
		text := int(r.spool.items[i].text)
		if i-from >= rowsPerTx || (bytes+text > bytesPerTx && i > from) {
			return i, bytes
		}
		bytes += text
	}
	return len(r.plan.items), bytes
}

// write does one transaction when it is its turn.
func (w *rowWriter) write(ctx context.Context, first bool, from, to, bytes int) (taskstate.Reason, error) {
	n := len(w.r.plan.items)
	leave, err := w.r.w.rows.enter(ctx, bytes, func() {
		w.r.report(taskstate.StageIndex, within(percentEmbed, percentRows, from, n), 0, n)
	})
	if err != nil {
		return "", err
	}
	defer leave()
	rows, err := w.load(from, to)
	if err != nil {
		return "", err
	}
	return w.transaction(ctx, first, from, to, rows)
}

// load reads the segments of one transaction before it begins.
func (w *rowWriter) load(from, to int) ([]Segment, error) {
	out := make([]Segment, 0, to-from)
	for i := from; i < to; i++ {
		s, err := w.r.spool.get(i)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// transaction writes the rows from–to; the first one also removes what the plan does not hold.
// It may run again from its start, so it keeps nothing in memory before it knows all.
func (w *rowWriter) transaction(ctx context.Context, first bool, from, to int, rows []Segment) (taskstate.Reason, error) {
	r := w.r
	reason := taskstate.ReasonDone
	err := r.a.d.Store.Hold(ctx, r.job.Task.ID, r.job.Token, func(ctx context.Context, tx taskstate.Tx, m taskstate.Moment) error {
		var found standing
		var err error
		if reason, found, err = r.guard(ctx, tx); err != nil || reason != taskstate.ReasonDone {
			return err
		}
		if mutant.Is("m9") {
			if _, err := tx.ExecContext(ctx, r.a.q.List("VersionsSupersede", 1), m.Now, m.Now, m.Now, r.job.Task.DocumentID); err != nil {
				return err
			}
		}
		if first {
			if err := w.clean(ctx, tx, m, found); err != nil {
				return err
			}
		}
		if err := w.checkReuse(ctx, tx, found.visible, from, to); err != nil {
			return err
		}
		if err := w.insert(ctx, tx, from, rows); err != nil {
			return err
		}
		if err := crash.Fault("worker.in_rows"); err != nil || to < len(r.plan.items) {
			return err
		}
		_, err = tx.ExecContext(ctx, r.a.q.Get("VersionBuilt"), r.a.d.Embedder.Model().Key, r.dim,
			short(r.a.d.Extractor.Fingerprint()), short(r.a.d.Splitter.Fingerprint()),
			len(r.plan.items), r.found.Pages, r.title(), m.Now, r.work.version)
		return err
	})
	return reason, err
}

// standing is what a holder finds when it opens a transaction.
type standing struct {
	visible string // id of the visible version; empty: none
	model   string // of the version's rows so far; empty: none are complete
	rows    bool   // an earlier transaction has left rows
	garbage bool   // an earlier run has dropped rows, whose vectors may come back
}

// guard locks the document and tells whether the version is still wanted, and how it stands.
func (r *run) guard(ctx context.Context, tx taskstate.Tx) (taskstate.Reason, standing, error) {
	var g standing
	var state string
	var upload int64
	var deleted taskstate.Stamp
	var rows, garbage int
	v := r.work.version
	err := tx.QueryRowContext(ctx, r.a.q.Get("VersionGuard"), v, v, v, v, r.work.document).Scan(
		&g.visible, &upload, &deleted, &state, &g.model, &rows, &garbage)
	if err != nil {
		return "", g, fmt.Errorf("lock document %s: %w", r.work.document, err)
	}
	g.visible, g.rows, g.garbage = strings.TrimSpace(g.visible), rows == 1, garbage == 1
	switch {
	case !deleted.IsZero():
		return taskstate.ReasonDeleted, g, nil
	case upload > r.work.uploadNo:
		return taskstate.ReasonSuperseded, g, nil
	case versionState(state) != versionBuilding:
		return "", g, Permanent(CodeInternal, remedyMissing, "version %s is %s, not BUILDING", v, state)
	}
	return taskstate.ReasonDone, g, nil
}

// clean removes the version's rows that the plan does not hold and names their vectors as garbage.
// Marks of vectors that another model made are taken away.
func (w *rowWriter) clean(ctx context.Context, tx taskstate.Tx, m taskstate.Moment, found standing) error {
	r := w.r
	w.have, w.stored, w.forget = make([]bool, len(r.plan.items)), make([]bool, len(r.plan.items)), found.garbage
	if !found.rows {
		return nil
	}
	drop, err := w.ownRows(ctx, tx)
	if err != nil {
		return fmt.Errorf("read the version's rows: %w", err)
	}
	if err := r.a.dropRows(ctx, tx, r.work.base, r.work.document, drop, m.Now); err != nil {
		return err
	}
	w.forget = w.forget || len(drop) > 0
	if found.model != "" && found.model != r.a.d.Embedder.Model().Key {
		if _, err := tx.ExecContext(ctx, r.a.q.Get("RowsUnstored"), r.work.version); err != nil {
			return fmt.Errorf("forget vectors of model %s: %w", found.model, err)
		}
	}
	return nil
}

// ownRows fills have and stored from the version's rows and answers those that the plan does not hold.
func (w *rowWriter) ownRows(ctx context.Context, tx taskstate.Tx) ([]namedRow, error) {
	items := w.r.plan.items
	w.have, w.stored = make([]bool, len(items)), make([]bool, len(items))
	rows, err := tx.QueryContext(ctx, w.r.a.q.Get("OwnRows"), w.r.work.version)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var drop []namedRow
	for rows.Next() {
		var n namedRow
		var index, stored int
		if err := rows.Scan(&n.id, &index, &n.vector, &n.birth, &stored); err != nil {
			return nil, err
		}
		if index >= len(items) || items[index].vector != n.vector {
			drop = append(drop, n)
			continue
		}
		w.have[index], w.stored[index] = true, stored == 1
	}
	return drop, rows.Err()
}

// checkReuse makes sure, under the document's lock, that vectors to be used again still belong to the visible version (design D8).
func (w *rowWriter) checkReuse(ctx context.Context, tx taskstate.Tx, visible string, from, to int) error {
	r := w.r
	if visible == r.plan.visible {
		return nil // rows of a visible version are never removed
	}
	var ids []string
	for i := from; i < to; i++ {
		if p := r.plan.items[i]; p.birth != r.work.version && !w.have[i] {
			ids = append(ids, p.vector)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	held, err := column(ctx, tx, r.a.q.List("RowsOfVersionHold", len(ids)), append([]any{visible}, args(ids)...)...)
	if err != nil {
		return fmt.Errorf("check vectors to be used again: %w", err)
	}
	if len(held) < len(ids) {
		return errReplan
	}
	return nil
}

// insert writes the rows that do not stand yet.
func (w *rowWriter) insert(ctx context.Context, tx taskstate.Tx, from int, rows []Segment) error {
	r := w.r
	var params []any
	var ids []string
	for n, s := range rows {
		if w.have[from+n] {
			continue
		}
		path, err := json.Marshal(append([]string{}, s.HeadingPath...))
		if err != nil {
			return fmt.Errorf("heading path of segment %d: %w", s.Index, err)
		}
		p := r.plan.items[from+n]
		params = append(params, r.work.document, r.work.version, r.work.no, s.Index, s.Text, r.spool.items[from+n].hash.String(),
			p.vector, p.birth, s.Page, string(path), s.ByteStart, s.ByteEnd, s.Tokens)
		ids = append(ids, p.vector)
	}
	if len(ids) == 0 {
		return nil
	}
	if w.forget {
		if _, err := tx.ExecContext(ctx, r.a.q.List("GarbageForget", len(ids)), args(ids)...); err != nil {
			return fmt.Errorf("name vectors by their rows again: %w", err)
		}
	}
	_, err := tx.ExecContext(ctx, r.a.q.Rows("SegmentInsert", len(ids)), params...)
	return err
}

// short makes a fingerprint fit its column: 190 ASCII characters.
func short(s string) string {
	const most = 190
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
	return s[:min(len(s), most)]
}
