package pipeline

import (
	"context"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

type (
	Run     = run
	RowTask = rowTask
)

const (
	RowsPerTx    = rowsPerTx
	PercentIndex = percentIndex
)

var ErrReplan = errReplan

// BeforeRows takes a task's run as far as its rows.
func (w *Worker) BeforeRows(ctx context.Context, job taskrun.Job) (*Run, error) {
	r := &run{w: w, job: job, vectors: newVectorCache(&w.cached), arrived: true}
	for _, step := range []func(context.Context) error{
		r.load, reading{r}.read, planning{r}.makePlan, paying{r}.embedMissing, paying{r}.agreeOnModel,
	} {
		if err := step(ctx); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Agree asks for the models of bases that have none, all at once, and returns what they are.
func (w *Worker) Agree(ctx context.Context, bases []string, mine []ingest.Model) ([]ingest.Model, []error) {
	wishes := make([]*modelWish, len(bases))
	for i := range bases {
		wishes[i] = &modelWish{base: bases[i], mine: mine[i]}
	}
	errs := w.models.Do(ctx, wishes...)
	out := make([]ingest.Model, len(bases))
	for i, wish := range wishes {
		out[i] = wish.agreed
	}
	return out, errs
}

func (r *run) Close() { r.close() }

// AllRows is all of a run's rows as one part.
func (r *run) AllRows() (*RowTask, error) {
	w := &rowWriter{r: r, plan: r.plan}
	n := len(r.plan.items)
	rows, err := w.load(0, n)
	t := &rowTask{w: w, first: true, to: n, bytes: 100, rows: rows}
	t.index = t.indexOf(func(int) bool { return true })
	return t, err
}

// WriteTogether writes parts in as few transactions as they fit into.
func (w *Worker) WriteTogether(ctx context.Context, tasks ...*RowTask) []error {
	return w.parts.Do(ctx, tasks...)
}

func (t *rowTask) LoseClaim()      { t.w.r.job.Token.Fence-- }
func (t *rowTask) Version() string { return t.w.r.work.version }
func (t *rowTask) Len() int        { return t.to }
func (t *rowTask) Err() error      { return t.err }

func (t *rowTask) Reason() taskstate.Reason {
	if u, ok := t.err.(unwanted); ok { //nolint:errorlint // as the transaction set it
		return taskstate.Reason(u)
	}
	return taskstate.ReasonDone
}

// Made is made.
var Made = made
