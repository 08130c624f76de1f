package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	maxTitleChars = 500
	maxBaseChars  = 190
	// acceptTries bounds how often an accept that raced with another one starts again.
	acceptTries = 5
	// One transaction takes so many uploads at most, beyond which its fixed cost is no longer felt.
	acceptMost = 128
	// A second transaction beside one at work uses the time of that one's commit, and is worth it for so many.
	acceptMinConcurrent = 24
	acceptWorkers       = 2
	// One begins in any case beside one that takes this long: a row that is locked, or a connection that is dead,
	// holds up the uploads of its own batch and not all that come after.
	acceptMaxWait = 250 * time.Millisecond
)

// Errors of what an upload says about itself, both 422.
var (
	ErrBadTitle    = errors.New("title is not valid")               // too long, or not text
	ErrBadBaseName = errors.New("knowledge base name is not valid") // empty, too long, or not text
)

// errRaced: another accept made the same thing first; looked at again it is there.
var errRaced = errors.New("raced with another upload")

// taskPayload is what a document's task says of its upload; the row is where a run reads it.
type taskPayload struct {
	FileName  string `json:"fileName"`
	MediaType string `json:"mediaType"`
	SHA256    string `json:"sha256"`
	Bytes     int64  `json:"bytes"`
	Title     string `json:"title,omitempty"` // given by the user; empty: out of the document
}

// accepting is one upload on its way through a batch.
type accepting struct {
	c     Caller
	u     Upload
	races int // times that it was put back because somebody else made the same thing first

	got  acceptance
	task taskstate.Task
	err  error // why this upload alone is refused
}

// acceptance is what the accept transaction found or made.
type acceptance struct {
	taskID    string // of the task to answer with
	document  documentRow
	baseName  string
	duplicate bool
	replayed  bool
	ownFile   bool // the upload's own copy is named by a row, this time or by an earlier try that was committed after all
}

// Accept makes document, version and task in one transaction, then adds the delivery (the fast path).
// The received file is taken over: a copy that no row needs is removed after the commit.
// Uploads that come while a transaction runs share the next one (package batcher); each is answered for itself.
// Errors: ErrBaseNotFound, ErrDocumentNotFound, ErrKeyReused, ErrBacklogFull, ErrBadTitle, ErrBadBaseName, taskstate.ErrUnavailable.
func (a *App) Accept(ctx context.Context, c Caller, u Upload) (Accepted, error) {
	got, errs := a.AcceptAll(ctx, c, []Upload{u})
	return got[0], errs[0]
}

// AcceptAll accepts several uploads of one caller as if one after the other: an answer or an error for each, as Accept gives it.
func (a *App) AcceptAll(ctx context.Context, c Caller, uploads []Upload) ([]Accepted, []error) {
	out, errs := make([]Accepted, len(uploads)), make([]error, len(uploads))
	var items []*accepting
	var places []int
	for i, u := range uploads {
		if errs[i] = u.clean(); errs[i] == nil {
			items, places = append(items, &accepting{c: c, u: u}), append(places, i)
		}
	}
	for n, err := range a.accepts.Do(ctx, items...) {
		out[places[n]], errs[places[n]] = a.answer(ctx, items[n], err)
	}
	return out, errs
}

// answer is what an upload's caller is told; err is that of its batch.
func (a *App) answer(ctx context.Context, x *accepting, err error) (Accepted, error) {
	switch {
	case err == nil:
		err = x.err // only now: a batch that its caller left may still be at work on x
		if err != nil && x.got.ownFile {
			a.keepUnknown(x.u.File.ID) // a row names it, only the answer could not be made
		}
	case !notCommitted(ctx, err):
		a.keepUnknown(x.u.File.ID) // the commit may have happened
	}
	if err != nil {
		a.refused(err)
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, taskstate.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", taskstate.ErrUnavailable, err) // the database used up the caller's time
		}
		return Accepted{}, fmt.Errorf("accept %s: %w", x.u.File.Name, err)
	}
	return Accepted{
		Task: x.task, Document: x.got.document.document(x.got.baseName), Duplicate: x.got.duplicate, Replayed: x.got.replayed,
	}, nil
}

// acceptBatch accepts the uploads of a batch in one transaction, then adds all their deliveries at once.
func (a *App) acceptBatch(ctx context.Context, b *batcher.Batch[*accepting]) error {
	items := b.Items()
	full, err := a.backlog.full(ctx, a) // replays and duplicates are answered all the same
	if err != nil {
		return err
	}
	var run *acceptRun
	tasks, err := a.d.Store.Submit(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
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
		if x.err == nil && !w.got.ownFile {
			copies = append(copies, x.u.File.ID)
		}
	}
	b.Release() // nothing of what follows is shared with the next transaction
	for _, id := range copies {
		a.drop(ctx, id)
	}
	a.backlog.add(len(tasks))
	a.announce(ctx, tasks)
	crash.Point("api.after_xadd")
	a.handTasks(ctx, mine, tasks)
	return nil
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
func (a *App) handTasks(ctx context.Context, items []*accepting, made []taskstate.Task) {
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

// splitsAccept reports whether a batch that failed so is worth trying upload by upload: one of them has the fault, not the database.
func splitsAccept(err error) bool {
	return !errors.Is(err, taskstate.ErrUnavailable) && !errors.Is(err, taskstate.ErrOutcomeUnknown) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// announce adds the deliveries of tasks that became QUEUED and wakes who waits for them.
// A delivery that could not be added is not lost: its row is the promise (design D5).
func (a *App) announce(ctx context.Context, tasks []taskstate.Task) {
	if len(tasks) == 0 {
		return
	}
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	a.d.Changed(ids...)
	if a.d.Publisher == nil {
		return
	}
	if a.quiet.leave(a.d.Clock(), tasks) {
		return // nobody waits for a queue that does not answer
	}
	a.publish(ctx, tasks)
}

// clean checks title and base and brings them into their kept form.
func (u *Upload) clean() (err error) {
	if u.Title, err = cleanTitle(u.Title); err != nil {
		return err
	}
	u.Base, err = cleanBase(u.Base)
	return err
}

// cleanTitle checks a user's title.
func cleanTitle(title string) (string, error) {
	if !utf8.ValidString(title) {
		return "", fmt.Errorf("%w: it is not valid UTF-8", ErrBadTitle)
	}
	if n := utf8.RuneCountInString(title); n > maxTitleChars {
		return "", fmt.Errorf("%w: %d characters, at most %d are allowed", ErrBadTitle, n, maxTitleChars)
	}
	title = strings.TrimSpace(title)
	if strings.ContainsFunc(title, unicode.IsControl) {
		return "", fmt.Errorf("%w: it holds control characters", ErrBadTitle)
	}
	return title, nil
}

// cleanBase checks the name or id of a base; empty is the default base.
func cleanBase(name string) (string, error) {
	if name == "" {
		return DefaultBase, nil
	}
	switch {
	case !utf8.ValidString(name):
		return "", fmt.Errorf("%w: it is not valid UTF-8", ErrBadBaseName)
	case strings.TrimSpace(name) == "" || strings.TrimSpace(name) != name:
		return "", fmt.Errorf("%w: it begins or ends with white space", ErrBadBaseName)
	case utf8.RuneCountInString(name) > maxBaseChars:
		return "", fmt.Errorf("%w: more than %d characters", ErrBadBaseName, maxBaseChars)
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", fmt.Errorf("%w: it holds control characters", ErrBadBaseName)
	}
	return name, nil
}

// newID is a UUIDv7 text; reading random numbers does not fail on the systems that we run on.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// payload describes the upload for its task.
func (u Upload) payload(title string) json.RawMessage {
	out, err := json.Marshal(taskPayload{
		FileName: u.File.Name, MediaType: u.File.MediaType, SHA256: u.File.SHA256, Bytes: u.File.Bytes, Title: title,
	})
	if err != nil {
		panic("ingest: strings and numbers are always JSON: " + err.Error())
	}
	return out
}
