package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	maxTitleChars = 500
	maxBaseChars  = 190
	// acceptTries bounds how often an accept that raced with another one starts again.
	acceptTries = 5
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

// acceptance is what one run of the accept transaction found or made.
type acceptance struct {
	taskID    string // of the task to answer with
	document  documentRow
	baseName  string
	duplicate bool
	replayed  bool
	ownFile   bool // the upload's own copy is named by a row
}

// Accept makes document, version and task in one transaction, then adds the delivery (the fast path).
// The received file is taken over: a copy that no row needs is removed after the commit.
// Errors: ErrBaseNotFound, ErrDocumentNotFound, ErrKeyReused, ErrBacklogFull, ErrBadTitle, ErrBadBaseName, taskstate.ErrUnavailable.
func (a *App) Accept(ctx context.Context, c Caller, u Upload) (Accepted, error) {
	title, err := cleanTitle(u.Title)
	if err != nil {
		return Accepted{}, err
	}
	u.Title = title
	if u.Base, err = cleanBase(u.Base); err != nil {
		return Accepted{}, err
	}
	got, tasks, err := a.acceptRaced(ctx, c, u)
	if err != nil {
		if errors.Is(err, taskstate.ErrUnavailable) || ctx.Err() != nil {
			a.keepUnknown(u.File.ID) // the commit may have happened
		}
		return Accepted{}, err
	}
	crash.Point("api.after_commit")
	if !got.ownFile {
		a.drop(ctx, u.File.ID)
	}
	a.backlog.add(len(tasks))
	a.announce(ctx, tasks)
	crash.Point("api.after_xadd")
	out := Accepted{Document: got.document.document(got.baseName), Duplicate: got.duplicate, Replayed: got.replayed}
	if len(tasks) == 1 {
		out.Task = tasks[0]
		return out, nil
	}
	if out.Task, err = a.d.Store.Get(ctx, taskstate.System(), got.taskID); err != nil {
		return Accepted{}, fmt.Errorf("accept %s: %w", u.File.Name, err)
	}
	return out, nil
}

// acceptRaced runs the transaction until it does not race with an identical upload or request.
func (a *App) acceptRaced(ctx context.Context, c Caller, u Upload) (acceptance, []taskstate.Task, error) {
	full, err := a.backlog.full(ctx, a) // replays and duplicates are answered all the same
	if err != nil {
		return acceptance{}, nil, err
	}
	for try := 1; ; try++ {
		var got acceptance
		tasks, err := a.d.Store.Submit(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.Moment) ([]taskstate.NewTask, error) {
			got = acceptance{}
			return a.acceptTx(ctx, tx, m, c, u, full, &got)
		})
		raced := errors.Is(err, errRaced) || errors.Is(err, taskstate.ErrDuplicateKey) || isUnique(err)
		if err != nil && raced && try < acceptTries {
			continue
		}
		if err != nil {
			return acceptance{}, nil, fmt.Errorf("accept %s: %w", u.File.Name, err)
		}
		return got, tasks, nil
	}
}

// acceptTx is the accept transaction: it answers the task to insert, or none when one is there already.
func (a *App) acceptTx(ctx context.Context, tx taskstate.Tx, m taskstate.Moment, c Caller, u Upload, full *backlogFullError, got *acceptance) ([]taskstate.NewTask, error) {
	w := &acceptWork{app: a, tx: tx, m: m, c: c, u: u, got: got}
	if done, err := w.replayed(ctx); done || err != nil {
		return nil, err
	}
	base, err := w.base(ctx)
	if err != nil {
		return nil, err
	}
	got.baseName = base.Name
	existing, err := w.existing(ctx, base.ID)
	if err != nil {
		return nil, err
	}
	if existing {
		if u.DocumentID != "" {
			if err := c.guard(got.document.document(base.Name)); err != nil {
				return nil, err
			}
		}
		if done, err := w.duplicate(ctx); done || err != nil {
			return nil, err
		}
	}
	if full != nil {
		return nil, full
	}
	return w.insert(ctx, base.ID, existing)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.PublishTimeout)
	defer cancel()
	if err := taskrun.Publish(ctx, a.d.Publisher, tasks); err != nil {
		a.d.Log.DebugContext(ctx, "ingest: delivery not added, the sweep will", "tasks", len(tasks), "error", a.d.Redact(err.Error()))
	}
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

// isUnique reports whether err is a database's complaint about a unique index, in the words of the three dialects:
// two transactions wrote the same key at once, and the later one starts again.
func isUnique(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, words := range []string{"UNIQUE constraint failed", "Duplicate entry", "duplicate key value"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
