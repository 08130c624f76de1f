package pipeline

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	rowsPerTx  = 500     // design D8
	bytesPerTx = 4 << 20 // of text: below every server's statement limit
)

// rowWriter writes a run's segment rows in transactions of the holder. What it is made of does not change any more, so that
// a transaction whose caller has gone can end in peace.
type rowWriter struct {
	r      *run
	plan   plan
	have   []bool // rows of this version that stand already, by index
	stored []bool // and whose vector an earlier attempt has marked as written
	forget bool   // vector_garbage may name an id that comes back
	stood  bool   // an earlier attempt has left rows
}

// writeRows makes the rows of the version what the plan says, in transactions that the holder's predicate and the document's lock open.
// Errors: unwanted; errReplan when a vector to be re-used is gone.
func (r *run) writeRows(ctx context.Context) error {
	crash.Point("worker.after_model")
	w := &rowWriter{r: r, plan: r.plan}
	n := len(r.plan.items)
	for from, first := 0, true; first || from < n; first = false {
		to, bytes := r.rowsUpTo(from)
		if err := w.write(ctx, first, from, to, bytes); err != nil {
			return fmt.Errorf("write segments %d–%d of %d: %w", from+1, to, n, err)
		}
		crash.Point("worker.after_rows")
		from = to
		r.report(ingest.StageIndex, within(percentEmbed, percentRows, to, n), 0, n)
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
func (w *rowWriter) write(ctx context.Context, first bool, from, to, bytes int) error {
	n := len(w.r.plan.items)
	leave, err := w.r.w.rows.enter(ctx, bytes, func() {
		w.r.report(ingest.StageIndex, within(percentEmbed, percentRows, from, n), 0, n)
	})
	if err != nil {
		return err
	}
	defer leave()
	rows, err := w.load(from, to)
	if err != nil {
		return err
	}
	t := &rowTask{w: w, first: first, from: from, to: to, bytes: bytes, rows: rows}
	t.index = t.indexOf(func(int) bool { return true })
	w.r.arrive()
	if err := w.r.w.parts.Do(ctx, t)[0]; err != nil {
		return err
	}
	return t.err
}

// load reads the segments of one transaction before it begins.
func (w *rowWriter) load(from, to int) ([]ingest.Segment, error) {
	out := make([]ingest.Segment, 0, to-from)
	for i := from; i < to; i++ {
		s, err := w.r.spool.get(i)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// indexOf is the full-text index of those of the part's rows that are wanted, by their indexes.
func (t *rowTask) indexOf(wanted func(i int) bool) *textindex.Batch {
	r := t.w.r
	texts := make([]textindex.Text, 0, len(t.rows))
	for i, s := range t.rows {
		if wanted(t.from + i) {
			texts = append(texts, textindex.Text{
				Version: r.work.version, Index: s.Index, TextHash: r.spool.items[t.from+i].hash.String(),
				Title: r.title(), Heading: s.HeadingPath, Text: s.Text,
			})
		}
	}
	return textindex.Build(r.work.base, texts)
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

// confirmRows reads back what is complete, so that only vectors are written whose row was really committed (design D8).
func (w *Worker) confirmRows(ctx context.Context, tasks []*rowTask) {
	fresh := map[string]catalog.OpenVersion{}
	for _, t := range going(tasks) {
		switch {
		case !t.last():
		case t.w.stood:
			t.err = t.w.confirm(ctx)
		default:
			fresh[t.w.r.job.Task.ID] = catalog.OpenVersion{ID: t.w.r.work.version}
		}
	}
	if len(fresh) == 0 {
		return
	}
	counts, err := sqldb.Read(ctx, w.d.Store, func(ctx context.Context, db taskstate.Tx) (map[string]catalog.SegmentCount, error) {
		return w.cat.CountSegments(ctx, db, fresh)
	})
	for _, t := range going(tasks) {
		if _, asked := fresh[t.w.r.job.Task.ID]; !asked {
			continue
		}
		if err != nil {
			t.err = fmt.Errorf("read the version's rows back: %w", err)
			continue
		}
		n := len(t.w.plan.items)
		if c := counts[t.w.r.work.version]; c.N != n || n > 0 && (c.Lowest != 0 || c.Highest != n-1) {
			t.err = ingest.Transient(ingest.CodeInternal, "the rows of version %s are not those that were written: %d of %d", t.w.r.work.version, c.N, n)
		}
	}
}

// confirm reads all rows of a version back among which an earlier attempt has left some, and notes which vectors it has written.
func (w *rowWriter) confirm(ctx context.Context) error {
	drop, err := sqldb.Read(ctx, w.r.w.d.Store, w.ownRows)
	if err != nil {
		return fmt.Errorf("read the version's rows back: %w", err)
	}
	if i := slices.Index(w.have, false); i >= 0 || len(drop) > 0 {
		return ingest.Transient(ingest.CodeInternal, "the rows of version %s are not those that were written: segment %d, %d foreign ones", w.r.work.version, i, len(drop))
	}
	return nil
}

// ownRows fills have and stored from the version's rows and returns those that the plan does not hold.
func (w *rowWriter) ownRows(ctx context.Context, tx taskstate.Tx) (drop []catalog.NamedRow, err error) {
	items := w.plan.items
	w.have, w.stored = make([]bool, len(items)), make([]bool, len(items))
	err = sqldb.QueryRows(ctx, tx, "read the version's rows", w.r.w.q.Get("OwnRows"), []any{w.r.work.version}, func(rows *sql.Rows) error {
		var n catalog.NamedRow
		var index int
		var stored bool
		var around [2]int32
		err := rows.Scan(&n.ID, &index, &n.Vector, &n.Birth, &stored, &around[0], &around[1])
		if err != nil || index >= len(items) || items[index].vector != n.Vector || w.r.spool.items[index].around != around {
			drop = append(drop, n)
			return err
		}
		w.have[index], w.stored[index] = true, stored
		return nil
	})
	return drop, err
}
