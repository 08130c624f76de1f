package workflows

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// ReindexBase is the id of the workflow that makes the vectors of a base anew when the embedding model has changed, and ingests documents
// again whose reader or chunking has changed.
const ReindexBase = "reindex.base"

const reindexSchema = `{"type": "object", "additionalProperties": false, "required": ["knowledgeBase"], "properties": {
	"knowledgeBase": {"type": "string", "minLength": 1, "maxLength": 128}, "dryRun": {"type": "boolean"}}}`

// Reindexing is the payload of reindex.base.
type Reindexing struct {
	KnowledgeBase string `json:"knowledgeBase"`
	DryRun        bool   `json:"dryRun,omitempty"` // only count
}

// Reindexed is the result of reindex.base.
type Reindexed struct {
	Documents int64 `json:"documents"` // with a visible version
	Outdated  int64 `json:"outdated"`  // of them, at the beginning of the last attempt
	// Moved are documents whose vectors were made anew with another model, in the last attempt.
	Moved int64 `json:"moved,omitempty"`
	// Tokens of the segments of the outdated documents, and what they would cost if none were re-used; dryRun only.
	Tokens *int64   `json:"tokens,omitempty"`
	Cost   *float64 `json:"cost,omitempty"`
	// What became of documents: made anew, failed (the version before stays visible), or left alone because a later upload waits or
	// has failed, or because the file is gone.
	Done     int64            `json:"done"`
	Failed   int64            `json:"failed"`
	Skipped  int64            `json:"skipped"`
	Failures []ReindexFailure `json:"failures,omitempty"` // the first ones
}

// ReindexFailure is a document that could not be made anew.
type ReindexFailure struct {
	DocumentID string `json:"documentId"`
	TaskID     string `json:"taskId"`
	ErrorCode  string `json:"errorCode"`
}

const (
	reindexAtOnce = 32  // documents that are under way at a time: users' uploads go on beside them
	reindexPage   = 200 // rows read at once
	reindexPoll   = 300 * time.Millisecond
	// reindexPatience is how many looks in a row may find nothing new: after 15 s the attempt ends, and goes on a little later. A
	// process that runs one task at a time could not run the documents while it waits for them.
	reindexPatience = 50
	maxFailures     = 20
)

// reindexing is one attempt.
type reindexing struct {
	*doors
	run      workflow.Run
	caller   ingest.Caller
	outdated []catalog.Made
	result   Reindexed
	flying   map[string]taskstate.Task // by document
	quiet    int                       // looks in a row that found nothing new
}

// reindex moves a base to this process's model if it has another one, and then makes each document anew whose visible version was made
// with other readers, or another chunking, than this process has. Each is switched as an upload is: in one step, and what is unchanged is not paid for again. Nothing but rows says how
// far it has come: an attempt that follows a crash goes on with what is still outdated, and finds what is under way by its key.
func (d *doors) reindex(ctx context.Context, r workflow.Run, c ingest.Caller, p Reindexing) (Reindexed, error) {
	if d.worker == nil {
		return Reindexed{}, errors.New("this process reads no documents")
	}
	base, err := d.app.Base(ctx, c, p.KnowledgeBase)
	if err != nil {
		return Reindexed{}, err
	}
	x := &reindexing{doors: d, run: r, caller: c, flying: map[string]taskstate.Task{}}
	if d.worker.Moves(base.Model) {
		if p.DryRun {
			return x.result, x.priceMove(ctx, base.ID)
		}
		if x.result.Moved, err = d.worker.Move(ctx, base, x.progress); err != nil {
			return Reindexed{}, err
		}
	}
	made, err := d.app.Made(ctx, base.ID)
	if err != nil {
		return Reindexed{}, err
	}
	for _, m := range made {
		x.result.Documents += m.Documents
		if !d.worker.Current(m.Extractor, m.Splitter, base.Chunking) {
			x.outdated = append(x.outdated, m)
			x.result.Outdated += m.Documents
		}
	}
	if p.DryRun {
		return x.result, x.price(ctx, base.ID)
	}
	if len(x.outdated) == 0 {
		return x.result, nil
	}
	return x.result, x.all(ctx, base.ID)
}

// priceMove says what a move to this process's model may cost.
func (x *reindexing) priceMove(ctx context.Context, base string) error {
	documents, tokens, err := x.worker.MoveCosts(ctx, base)
	x.result.Documents, x.result.Outdated = documents, documents
	x.result.Tokens, x.result.Cost = &tokens, x.worker.Cost(tokens)
	return err
}

// price says what it may cost.
func (x *reindexing) price(ctx context.Context, base string) error {
	tokens := int64(0)
	if len(x.outdated) > 0 {
		var err error
		if tokens, err = x.app.TokensMade(ctx, base, x.outdated); err != nil {
			return err
		}
	}
	x.result.Tokens, x.result.Cost = &tokens, x.worker.Cost(tokens)
	return nil
}

// all goes through the outdated documents in the order of their ids.
func (x *reindexing) all(ctx context.Context, base string) error {
	for after, more := "", true; more; {
		page, err := x.app.MadeWith(ctx, base, x.outdated, after, reindexPage)
		if err != nil {
			return err
		}
		for _, document := range page {
			if err := x.until(ctx, reindexAtOnce-1); err != nil {
				return err
			}
			if err := x.one(ctx, document); err != nil {
				return err
			}
			after = document.ID
		}
		more = len(page) == reindexPage
	}
	return x.until(ctx, 0)
}

// until waits until at most so many documents are under way.
func (x *reindexing) until(ctx context.Context, most int) error {
	for len(x.flying) > most {
		changed, err := x.look(ctx)
		if err != nil {
			return err
		}
		x.report()
		if x.quiet++; changed {
			x.quiet = 0
		}
		switch {
		case len(x.flying) <= most:
		case x.quiet > reindexPatience:
			return &workflow.Failure{
				Code: workflow.CodeThrottle, Throttled: true, RetryAfter: time.Second, Message: "The documents wait for a worker.",
				Cause: fmt.Sprintf("%d documents are under way, and none has come further in %v", len(x.flying), reindexPatience*reindexPoll),
			}
		case !pause.For(ctx, x.poll):
			return ctx.Err()
		}
	}
	return nil
}

// report says how far it is, in documents.
func (x *reindexing) report() {
	x.progress(int(x.result.Done+x.result.Failed+x.result.Skipped), int(x.result.Outdated))
}

func (x *reindexing) progress(done, all int) {
	x.run.Report(taskstate.Progress{Stage: taskstate.StageRun, Percent: min(99, 100*done/max(all, 1)), Processed: min(done, all), Total: all})
}

// look reads how far the documents under way are; changed tells that any has come further.
func (x *reindexing) look(ctx context.Context) (changed bool, err error) {
	ids := make([]string, 0, len(x.flying))
	for _, t := range x.flying {
		ids = append(ids, t.ID)
	}
	found, err := x.store.GetMany(ctx, taskstate.System(), ids)
	if err != nil {
		return false, err
	}
	for _, t := range found {
		before := x.flying[t.DocumentID]
		changed = changed || before.Status != t.Status || before.Progress != t.Progress
		if x.flying[t.DocumentID] = t; !t.Status.Terminal() {
			continue
		}
		delete(x.flying, t.DocumentID)
		x.ended(t)
	}
	return changed, nil
}

// ended counts a document.
func (x *reindexing) ended(t taskstate.Task) {
	switch {
	case t.Status == taskstate.StatusSucceeded:
		x.result.Done++
	case t.Status == taskstate.StatusCancelled: // deleted, or a later upload is visible
		x.result.Skipped++
	default:
		if x.result.Failed++; len(x.result.Failures) < maxFailures {
			x.result.Failures = append(x.result.Failures, ReindexFailure{DocumentID: t.DocumentID, TaskID: t.ID, ErrorCode: t.ErrorCode})
		}
	}
}

// one takes the visible bytes of a document in again, unless an earlier attempt has done so.
func (x *reindexing) one(ctx context.Context, document catalog.MadeDocument) error {
	key := tasks.UserKey{User: x.caller.Scope.UserID, Key: "workflow:" + x.run.Key + ":" + document.ID}
	t, made, err := x.earlier(ctx, key)
	if err != nil {
		return err
	}
	if made {
		x.flying[t.DocumentID] = t
		return nil
	}
	last, err := x.store.Get(ctx, x.caller.Scope, document.LatestTask)
	if err != nil {
		return err
	}
	if last.Status != taskstate.StatusSucceeded {
		x.result.Skipped++
		return nil
	}
	t, err = x.accept(ctx, document.ID, key.Key)
	switch {
	case err == nil:
		x.flying[t.DocumentID] = t
	case errors.Is(err, ingest.ErrDocumentNotFound), errors.Is(err, ingest.ErrChanged), errors.Is(err, fs.ErrNotExist):
		x.result.Skipped++ // deleted, uploaded anew, or without a file meanwhile
	default:
		return err
	}
	return nil
}

// accept makes a new version of a document's bytes.
func (x *reindexing) accept(ctx context.Context, document, key string) (taskstate.Task, error) {
	c := x.caller
	u, body, err := x.again(ctx, x.run, &c, payload{DocumentID: document})
	if err != nil {
		return taskstate.Task{}, err
	}
	defer func() { _ = body.Close() }() // it was only read
	if u.File, err = x.app.Receive(ctx, body, u.File.Name); err != nil {
		return taskstate.Task{}, err
	}
	u.IdempotencyKey = key
	got, err := x.app.Accept(ctx, c, u)
	if err != nil {
		x.app.Discard(u.File)
	}
	return got.Task, err
}
