// Package document measures the way of real documents: readers, memory, and the whole against its parts.
package document

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	docRounds   = 3
	docSlots    = 64  // documents at a time, and
	docEmbeds   = 8   // embedding calls: the workers' defaults
	uploadsOnce = 16  // clients of the upload, which counts in no figure
	vectorBatch = 200 // as the product writes them
	docPoll     = 50 * time.Millisecond
)

// documentsRun is the benchmark of whole documents.
type documentsRun struct {
	b      *world.Bench
	w      *world.World
	client *apiclient.Client
	worker *proc.Proc
	parts  *parts
	load   *apiclient.Record
}

// round is what one mix of documents took, part by part and from end to end.
type round struct {
	alone    alone
	whole    cost
	counters map[string]float64 // of MariaDB, per document
}

// Documents takes 200 real documents through upload, extraction, embedding and indexing on real servers, against the
// unavoidable parts of that work measured alone in the same rounds. Nothing but the work itself counts: documents are
// uploaded while the worker is stopped.
//
// Machinery is all CPU of worker, readers, Chroma, MariaDB and Redis that the parts alone did not use.
func Documents(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	s, err := startStub(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	w, client, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "documents", Env: []string{
		"EMBEDDING_BASE_URL=" + s.url, "EMBEDDING_MODEL=test", "EXTRACT_CHILD_FILES=100000", "UPLOAD_RATE_LIMIT=0",
	}}, "ingest-api", "stream-worker")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	r := &documentsRun{b: b, w: w, client: client, worker: procs[1], load: &apiclient.Record{Accepted: map[string]apiclient.Doc{}}}
	if r.parts, err = newParts(ctx, b.Root, w, s.url, docSlots); err != nil {
		return nil, err
	}
	defer r.parts.close()
	if _, err := r.round(ctx, 0); err != nil { // starts the worker's readers, and fills caches on both sides
		return nil, err
	}
	var rounds []round
	for n := 1; n <= docRounds; n++ {
		one, err := r.round(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", n, err)
		}
		rounds = append(rounds, one)
	}
	peak := proc.Peak(r.worker.PID)
	for _, pid := range proc.Children(r.worker.PID) {
		peak += proc.Peak(pid)
	}
	figures := append(documentFigures(rounds), figure.Figure{Name: "stream-worker and its children, their peaks together", Measured: figure.Megabytes(peak), Unit: "MB"})
	return figures, figure.Audit(w, r.load).Run(ctx)
}

// round measures the parts and then the whole with the documents of one number.
func (r *documentsRun) round(ctx context.Context, n int) (out round, err error) {
	docs, err := mix(r.b.Root, n)
	if err != nil {
		return out, err
	}
	// What the embedding cache has is not paid for again: the sample files come in every round.
	if err := r.forgetLedger(ctx); err != nil {
		return out, err
	}
	if out.alone, err = r.parts.measure(ctx, docs, fmt.Sprintf("alone-%d", n)); err != nil {
		return out, err
	}
	out.whole, out.counters, err = r.whole(ctx, docs, fmt.Sprintf("whole-%d", n))
	return out, err
}

// forgetLedger empties the table of embeddings that were paid for, leaving nothing for the server to clean up later.
func (r *documentsRun) forgetLedger(ctx context.Context) error {
	_, err := r.w.DB.Reader().ExecContext(ctx, "TRUNCATE TABLE embedding_ledger")
	return err
}

// whole uploads documents while the worker stands still, lets it go and waits until all are visible.
func (r *documentsRun) whole(ctx context.Context, docs []apiclient.Doc, base string) (c cost, perDoc map[string]float64, err error) {
	if err := r.worker.Signal(syscall.SIGSTOP); err != nil {
		return c, nil, err
	}
	defer r.worker.Signal(syscall.SIGCONT) //nolint:errcheck // it runs, or is gone
	if err := r.upload(ctx, docs, base); err != nil {
		return c, nil, err
	}
	pids := map[string]int{
		"worker": r.worker.PID, "chroma": r.w.Chroma.PID(), "mariadb": r.w.SQL.PID(), "redis": r.w.Redis.PID(),
	}
	quiet(ctx, pids)
	before, err := r.status(ctx)
	if err != nil {
		return c, nil, err
	}
	polls := 0
	c, err = measured(ctx, pids, func() error {
		if err := r.worker.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		return await.Until(ctx, figure.SettleLimit, docPoll, func(ctx context.Context) error {
			polls++
			return r.done(ctx)
		})
	})
	if err != nil {
		return c, nil, err
	}
	after, err := r.status(ctx)
	if err != nil {
		return c, nil, err
	}
	after["Questions"] -= float64(polls + 1)
	for name := range after {
		after[name] = (after[name] - before[name]) / float64(len(docs))
	}
	return c, after, await.Until(ctx, figure.SettleLimit, time.Second, r.rest)
}

// rest is nil when no task is left: the attachments of a message are taken in after it is visible.
func (r *documentsRun) rest(ctx context.Context) error {
	left, err := tables.Query(ctx, r.w.DB.Reader(), sqldb.Column[int], `SELECT COUNT(*) FROM ingest_task WHERE status IN ('QUEUED', 'RUNNING', 'RETRYING')`)
	if err == nil && left[0] > 0 {
		err = fmt.Errorf("%d tasks are not finished", left[0])
	}
	return err
}

// upload sends all documents into a new base.
func (r *documentsRun) upload(ctx context.Context, docs []apiclient.Doc, base string) error {
	if err := r.client.CreateBase(ctx, base); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(uploadsOnce)
	tasks := make([]apiclient.Task, len(docs))
	for i, d := range docs {
		d.Base = base
		group.Go(func() (err error) {
			if tasks[i], err = r.client.Upload(ctx, d); err != nil {
				return fmt.Errorf("upload %s: %w", d.Name, err)
			}
			if tasks[i].Duplicate {
				return fmt.Errorf("upload %s: taken for another document", d.Name)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, t := range tasks {
		docs[i].Base = base
		r.load.Accepted[t.TaskID] = docs[i]
	}
	return nil
}

// done is nil when every document is visible; attachments of messages are more than were uploaded. The statement reads one narrow table:
// what it costs counts as machinery.
func (r *documentsRun) done(ctx context.Context) error {
	ready, err := tables.Query(ctx, r.w.DB.Reader(), sqldb.Column[int], `SELECT COUNT(*) FROM knowledge_document WHERE status = 'READY' AND parent_id IS NULL`)
	if err == nil && ready[0] != len(r.load.Accepted) {
		err = fmt.Errorf("%d of %d documents are visible", ready[0], len(r.load.Accepted))
	}
	return err
}

// status reads MariaDB's own counters.
func (r *documentsRun) status(ctx context.Context) (map[string]float64, error) {
	out := map[string]float64{}
	_, err := tables.Query(ctx, r.w.DB.Reader(), func(r *sql.Rows) (name string, err error) {
		var value float64
		err = r.Scan(&name, &value)
		out[name] = value
		return name, err
	}, `SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_commit', 'Innodb_data_fsyncs', 'Innodb_os_log_written')`)
	return out, err
}

// documentFigures are the medians of the rounds.
func documentFigures(rounds []round) []figure.Figure {
	of := func(f func(round) float64) float64 { return middle(rounds, f) }
	rate := func(wall func(round) float64) float64 {
		return of(func(r round) float64 { return mixDocs / wall(r) })
	}
	cpu := func(f func(round) cost) string { return cpuOfDocument(rounds, f) }
	segments := of(func(r round) float64 { return float64(r.alone.segments) })
	counter := func(name string) float64 { return of(func(r round) float64 { return r.counters[name] }) }
	return []figure.Figure{
		{Name: "extract and split alone", Measured: rate(func(r round) float64 { return r.alone.extract.wall }), Unit: "docs/s", Note: cpu(func(r round) cost { return r.alone.extract })},
		{Name: "full-text index alone", Measured: rate(func(r round) float64 { return r.alone.index.wall }), Unit: "docs/s", Note: cpu(func(r round) cost { return r.alone.index })},
		{Name: "embed alone", Measured: rate(func(r round) float64 { return r.alone.embed.wall }), Unit: "docs/s", Note: cpu(func(r round) cost { return r.alone.embed })},
		{Name: "vectors alone", Measured: rate(func(r round) float64 { return r.alone.vectors.wall }), Unit: "docs/s", Note: cpu(func(r round) cost { return r.alone.vectors })},
		{Name: "all cores busy with nothing but these parts", Measured: rate(func(r round) float64 { return r.alone.cpu() / float64(runtime.NumCPU()) }), Unit: "docs/s", Note: fmt.Sprintf("%.0f segments of %d values", segments, stubDim)},
		{Name: "end to end", Measured: rate(func(r round) float64 { return r.whole.wall }), Unit: "docs/s", Note: cpu(func(r round) cost { return r.whole })},
		{Name: "end to end / the slowest part alone", Measured: of(func(r round) float64 { return r.alone.slowest() / r.whole.wall }), Unit: "x", Asked: 0.85, Relation: "≥", Note: fmt.Sprintf("%d documents, median of %d rounds", mixDocs, len(rounds))},
		{Name: "end to end / all cores busy with nothing but these parts", Measured: of(func(r round) float64 { return r.alone.cpu() / float64(runtime.NumCPU()) / r.whole.wall }), Unit: "x", Note: "the rate that this machine can give at all"},
		{Name: "end to end / all parts one after the other", Measured: of(func(r round) float64 { return r.alone.sum() / r.whole.wall }), Unit: "x"},
		{Name: "machinery's share of the CPU", Measured: 100 * of(func(r round) float64 { return 1 - r.alone.cpu()/r.whole.total() }), Unit: "%", Asked: 10, Relation: "≤", Note: "what the parts alone do not use"},
		{Name: "SQL statements a document", Measured: counter("Questions"), Unit: ""},
		{Name: "commits a document", Measured: counter("Com_commit"), Unit: "", Note: fmt.Sprintf("%.2g fsyncs, %.2g KB redo", counter("Innodb_data_fsyncs"), counter("Innodb_os_log_written")/figure.Kilobyte)},
	}
}

// cpuOfDocument tells who used how much CPU for a document, by the medians of the rounds.
func cpuOfDocument[R any](rounds []R, f func(R) cost) string {
	var shares []string
	for _, name := range slices.Sorted(maps.Keys(f(rounds[0]).cpu)) {
		shares = append(shares, fmt.Sprintf("%s %.1f", name, 1000*middle(rounds, func(r R) float64 { return f(r).cpu[name] })/mixDocs))
	}
	return fmt.Sprintf("%.1f ms CPU a document: %s", 1000*middle(rounds, func(r R) float64 { return f(r).total() })/mixDocs, strings.Join(shares, ", "))
}

// middle is the median of a value over the rounds.
func middle[R any](rounds []R, f func(R) float64) float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = f(r)
	}
	return figure.Median(values)
}
