// Package upload receives documents and accepts them: files first, then all rows in one transaction.
package upload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Uploads takes documents in: it receives files and accepts them as versions with tasks. It is safe for concurrent use.
type Uploads struct {
	d       ingest.Deps
	cfg     ingest.Config
	q       sqldb.Queries
	cat     *catalog.Catalog
	mount   *files.Mount
	deliver *tasks.Service
	accepts *batcher.Batcher[*accepting]

	unknown   unknowns // uploads whose COMMIT may have happened
	admission admission
}

// New makes an Uploads.
func New(d ingest.Deps, cfg ingest.Config, cat *catalog.Catalog, mount *files.Mount, deliver *tasks.Service) *Uploads {
	a := &Uploads{d: d, cfg: cfg, q: cat.Queries(), cat: cat, mount: mount, deliver: deliver}
	a.accepts = batcher.New(batcher.Config{Workers: acceptWorkers, MinConcurrent: acceptMinConcurrent, Most: acceptMost, MaxWait: acceptMaxWait, Split: ingest.Splits}, a.acceptBatch)
	return a
}

const (
	// acceptTries bounds how often an accept that raced with another one starts again.
	acceptTries = 5
	// One transaction takes so many uploads at most, beyond which its fixed cost is no longer felt.
	acceptMost = 128
	// A second transaction beside one at work uses the time of that one's commit, and is worth it for so many.
	acceptMinConcurrent = 40
	acceptWorkers       = 2
	// One begins in any case beside one that takes this long: a row that is locked, or a connection that is dead,
	// holds up the uploads of its own batch and not all that come after.
	acceptMaxWait = 250 * time.Millisecond
)

// errRaced: another accept made the same thing first; looked at again it is there.
var errRaced = errors.New("raced with another upload")

// accepting is one upload on its way through a batch.
type accepting struct {
	c     ingest.Caller
	u     ingest.Upload
	races int // times that it was put back because somebody else made the same thing first

	got   acceptance
	task  taskstate.Task
	waits bool  // its delivery could not be added yet
	err   error // why this upload alone is refused
}

// acceptance is what the accept transaction found or made.
type acceptance struct {
	taskID    string // of the task to answer with
	document  catalog.DocumentRow
	baseName  string
	duplicate bool
	replayed  bool
	ownFile   bool // the upload's own copy is named by a row, this time or by an earlier try that was committed after all
}

// Accept makes document, version and task in one transaction, then adds the delivery (the fast path).
// The received file is taken over: a copy that no row needs is removed after the commit.
// Uploads that come while a transaction runs share the next one (package batcher); each is answered for itself.
// Errors: ErrBaseNotFound, ErrDocumentNotFound, ErrKeyReused, ErrBacklogFull, *TextError, taskstate.ErrUnavailable.
func (a *Uploads) Accept(ctx context.Context, c ingest.Caller, u ingest.Upload) (ingest.Accepted, error) {
	got, errs := a.AcceptAll(ctx, c, []ingest.Upload{u})
	return got[0], errs[0]
}

// AcceptAll accepts several uploads of one caller as if one after the other: an answer or an error for each, as Accept gives it.
func (a *Uploads) AcceptAll(ctx context.Context, c ingest.Caller, uploads []ingest.Upload) ([]ingest.Accepted, []error) {
	return a.acceptEach(ctx, func(int) ingest.Caller { return c }, uploads)
}

// Restore gives lost uploads their rows again, as if one after the other; callers are whose they are. An error for each, as Accept gives
// it; ErrUploadExpired: its file is lost too.
func (a *Uploads) Restore(ctx context.Context, callers []ingest.Caller, uploads []ingest.Upload) []error {
	_, errs := a.acceptEach(ctx, func(i int) ingest.Caller { return callers[i] }, uploads)
	return errs
}

func (a *Uploads) acceptEach(ctx context.Context, caller func(i int) ingest.Caller, uploads []ingest.Upload) ([]ingest.Accepted, []error) {
	out, errs := make([]ingest.Accepted, len(uploads)), make([]error, len(uploads))
	var items []*accepting
	var places []int
	for i, u := range uploads {
		if errs[i] = u.Clean(); errs[i] == nil {
			items, places = append(items, &accepting{c: caller(i), u: u}), append(places, i)
		}
	}
	for n, err := range a.accepts.Do(ctx, items...) {
		out[places[n]], errs[places[n]] = a.answer(ctx, items[n], err)
	}
	return out, errs
}

// answer is what an upload's caller is told; err is that of its batch.
func (a *Uploads) answer(ctx context.Context, x *accepting, err error) (ingest.Accepted, error) {
	switch {
	case err == nil:
		err = x.err // only now: a batch that its caller left may still be at work on x
		if err != nil && x.got.ownFile {
			a.keepUnknown(x.u.File.ID) // a row names it, only the answer could not be made
		}
	case x.u.Kept != nil: // its file was there before
	case !notCommitted(ctx, err):
		a.keepUnknown(x.u.File.ID) // the commit may have happened
	}
	if err != nil {
		a.refused(err)
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, taskstate.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err) // the database used up the caller's time
		}
		return ingest.Accepted{}, fmt.Errorf("accept %s: %w", x.u.File.Name, err)
	}
	return ingest.Accepted{
		Task: x.task, Document: x.got.document.Document(x.got.baseName), Duplicate: x.got.duplicate, Replayed: x.got.replayed,
		Waits: x.waits,
	}, nil
}

// acceptBatch accepts the uploads of a batch in one transaction, then adds all their deliveries at once.
func (a *Uploads) acceptBatch(ctx context.Context, b *batcher.Batch[*accepting]) error {
	items := b.Items()
	var run *acceptRun
	made, err := a.deliver.Insert(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, full error) ([]taskstate.NewTask, error) {
		run = newAcceptRun(a, tx, m, items, full)
		return run.prepare(ctx)
	})
	switch {
	case err == nil:
	case raced(err) && len(items) == 1 && items[0].races < acceptTries:
		items[0].races++
		b.Requeue(0)
		return nil
	default:
		return err
	}
	crash.Point("api.after_commit")
	var copies []string // of uploads that need none of their own
	var mine []*accepting
	for i, w := range run.works {
		x := items[i]
		if x.got, x.err = w.got, w.err; w.state == acceptPostponed && !x.givesUp(w.raced) {
			b.Requeue(i)
			continue
		}
		mine = append(mine, x)
		if x.err == nil && !w.got.ownFile && x.u.Lost == nil && x.u.Kept == nil { // others name the same file
			copies = append(copies, x.u.File.ID)
		}
	}
	b.Release() // nothing of what follows is shared with the next transaction
	for _, id := range copies {
		a.mount.Drop(ctx, id)
	}
	if a.deliver.Announce(ctx, made) {
		for _, x := range mine {
			x.waits = slices.ContainsFunc(made, func(t taskstate.Task) bool { return t.ID == x.got.taskID })
		}
	}
	crash.Point("api.after_xadd")
	a.handTasks(ctx, mine, made)
	return nil
}

// prepare is the accept transaction: it returns the tasks to insert, none for replays and duplicates.
// Locks are taken in the order of the whole product: bases, documents by id, files by id, inserts.
func (r *acceptRun) prepare(ctx context.Context) ([]taskstate.NewTask, error) {
	for _, step := range []func(context.Context) error{
		r.replays,        // the tasks of earlier requests with the same keys
		r.heldKeys,       // keys of requests that are still being received
		r.findBases,      // where the uploads go; default bases are made
		r.findSame,       // documents and stored files with the same bytes
		r.lockDocuments,  // that the uploads are further versions of
		r.readLatest,     // the last tasks of these documents
		r.decide,         // a duplicate, refused, postponed, or written now
		r.linkFiles,      // the row that holds the bytes, after damage is mended
		r.writeDocuments, // new ones, and one more upload of the others
		r.writeVersions,  // with their tasks
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return r.tasks, nil
}

// givesUp says of an upload that waits for the next transaction whether it has lost against others too often.
func (x *accepting) givesUp(raced bool) bool {
	if raced {
		x.races++
	}
	if x.races < acceptTries {
		return false
	}
	x.err = errRaced
	return true
}

// handTasks gives every accepted upload its task; those of replays and duplicates are read.
func (a *Uploads) handTasks(ctx context.Context, items []*accepting, made []taskstate.Task) {
	byID := make(map[string]taskstate.Task, len(items))
	for _, t := range made {
		byID[t.ID] = t
	}
	var old []string
	for _, x := range items {
		if _, known := byID[x.got.taskID]; !known && x.err == nil && x.got.taskID != "" {
			old = append(old, x.got.taskID)
			byID[x.got.taskID] = taskstate.Task{}
		}
	}
	var err error
	if len(old) > 0 {
		var found []taskstate.Task
		found, err = a.d.Store.GetMany(ctx, taskstate.System(), old)
		for _, t := range found {
			byID[t.ID] = t
		}
	}
	for _, x := range items {
		if x.err != nil || x.got.taskID == "" {
			continue
		}
		if x.task = byID[x.got.taskID]; x.task.ID == "" {
			if x.err = err; err == nil {
				x.err = fmt.Errorf("task %s: %w", x.got.taskID, taskstate.ErrNotFound)
			}
		}
	}
}

// raced says of an error that somebody else made the same thing first: looked at again it is there.
func raced(err error) bool {
	return errors.Is(err, taskstate.ErrDuplicateKey) || errors.Is(err, taskstate.ErrUnique)
}
