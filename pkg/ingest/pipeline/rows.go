package pipeline

import (
	"context"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
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
