// Package workflows has the workflows of the ingestion: a text, an address or a document is taken in by a task, or a document deleted.
package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// The ids.
const (
	IngestText     = "ingest.text"
	IngestURL      = "ingest.url"
	IngestDocument = "ingest.document"
	DeleteDocument = "delete.document"
)

// The codes of failures, beside those of documents; all permanent.
const (
	CodeNoDocument = "DOCUMENT_NOT_FOUND"
	CodeNoBase     = "KNOWLEDGE_BASE_NOT_FOUND"
)

// Schemas of the payloads.
const (
	aboutDocument = `"title": {"type": "string", "maxLength": 500}, "fileName": {"type": "string", "maxLength": 255},
	"knowledgeBase": {"type": "string", "maxLength": 128}, "metadata": {"type": "object"}`
	textSchema = `{"type": "object", "additionalProperties": false, "required": ["text"], "properties": {
	"text": {"type": "string", "minLength": 1}, ` + aboutDocument + `}}`
	urlSchema = `{"type": "object", "additionalProperties": false, "required": ["url"], "properties": {
	"url": {"type": "string", "format": "uri", "maxLength": 2048}, ` + aboutDocument + `}}`
	documentSchema = `{"type": "object", "additionalProperties": false, "required": ["documentId"], "properties": {
	"documentId": {"type": "string", "format": "uuid"}}}`
)

// payload has the members of all of them.
type payload struct {
	Text          string          `json:"text"`
	URL           string          `json:"url"`
	DocumentID    string          `json:"documentId"`
	Title         string          `json:"title"`
	FileName      string          `json:"fileName"`
	KnowledgeBase string          `json:"knowledgeBase"`
	Metadata      json.RawMessage `json:"metadata"`
}

// Taken is the result of a workflow that takes a document in: the document's own task goes on from there.
type Taken struct {
	TaskID          string `json:"taskId"`
	DocumentID      string `json:"documentId"`
	KnowledgeBaseID string `json:"knowledgeBaseId"`
	Duplicate       bool   `json:"duplicate"` // the same bytes were there: the task is the document's last one
}

// Deleted is the result of delete.document. Deleted false: there was no such document, or not any more.
type Deleted struct {
	DocumentID string `json:"documentId"`
	Deleted    bool   `json:"deleted"`
}

// doors are what the workflows work with.
type doors struct {
	app    *app.App
	store  taskstate.Database
	fetch  *fetcher
	worker *pipeline.Worker // nil: this process reads no documents
	poll   time.Duration    // between two looks at documents under way

	operations *bulk.Operations
}

// New makes the workflows over an application that receives files. networks are those, beside the public ones, from which ingest.url
// fetches. worker reads documents; nil where the workflows are not run.
func New(a *app.App, store taskstate.Database, networks Networks, worker *pipeline.Worker) []workflow.Workflow {
	return newPolling(a, store, networks, worker, reindexPoll)
}

func newPolling(a *app.App, store taskstate.Database, networks Networks, worker *pipeline.Worker, poll time.Duration) []workflow.Workflow {
	d := &doors{app: a, store: store, fetch: newFetcher(networks), worker: worker, poll: poll, operations: NewBulk(a, store)}
	return []workflow.Workflow{
		{ID: IngestText, Schema: json.RawMessage(textSchema), Text: "text", Run: d.ingesting(d.text)},
		{ID: IngestURL, Schema: json.RawMessage(urlSchema), Text: "url", Run: d.ingesting(d.url)},
		{ID: IngestDocument, Schema: json.RawMessage(documentSchema), Text: "documentId", Run: d.ingesting(d.again)},
		{ID: DeleteDocument, Schema: json.RawMessage(documentSchema), Text: "documentId", Run: run(d.remove)},
		{ID: PreviewDocument, Schema: json.RawMessage(previewSchema), Text: "documentId", Run: run(d.preview)},
		{ID: IngestArchive, Schema: json.RawMessage(archiveSchema), Run: run(d.unpack)},
		{ID: ingest.AttachmentsWorkflow, Schema: json.RawMessage(attachmentsSchema), Run: run(d.attach)},
		{ID: ReindexBase, Schema: json.RawMessage(reindexSchema), Text: "knowledgeBase", Run: run(d.reindex)},
		{ID: bulk.Workflow, Schema: json.RawMessage(bulkSchema), Run: d.bulk},
	}
}

// run makes a workflow's function of one that reads its payload and returns what can be JSON.
func run[P, R any](f func(ctx context.Context, r workflow.Run, c ingest.Caller, p P) (R, error)) func(context.Context, workflow.Run) (json.RawMessage, error) {
	return func(ctx context.Context, r workflow.Run) (json.RawMessage, error) {
		var p P
		if err := json.Unmarshal(r.Payload, &p); err != nil {
			return nil, &workflow.PayloadError{Problem: err.Error()}
		}
		got, err := f(ctx, r, callerOf(r.Task), p)
		if err != nil {
			return nil, failureOf(err)
		}
		return json.Marshal(got)
	}
}

// callerOf is the user of a task.
func callerOf(t taskstate.Task) ingest.Caller {
	return ingest.Caller{
		Scope: taskstate.Scope{UserID: t.UserID, Role: taskstate.RoleUser}, Channel: t.Channel, RequestID: t.RequestID, TraceParent: t.TraceParent,
	}
}

// open gives the upload that a payload is about, without its file, and the file's bytes; the caller closes them.
type open func(ctx context.Context, r workflow.Run, c *ingest.Caller, p payload) (ingest.Upload, io.ReadCloser, error)

// ingesting takes in what open gives. A task that has done so before, in an attempt whose end was lost, finds what it made by its key:
// nothing is fetched or taken in twice.
func (d *doors) ingesting(o open) func(context.Context, workflow.Run) (json.RawMessage, error) {
	return run(func(ctx context.Context, r workflow.Run, c ingest.Caller, p payload) (Taken, error) {
		key := tasks.UserKey{User: c.Scope.UserID, Key: "workflow:" + r.Key}
		if t, made, err := d.earlier(ctx, key); err != nil || made {
			return takenOf(t, false), err
		}
		u, body, err := o(ctx, r, &c, p)
		if err != nil {
			return Taken{}, err
		}
		defer func() { _ = body.Close() }() // it was only read
		if u.File, err = d.app.Receive(ctx, &reported{body, r}, u.File.Name); err != nil {
			return Taken{}, err
		}
		u.IdempotencyKey, u.ChatID = key.Key, r.Task.ChatID
		got, err := d.app.Accept(ctx, c, u)
		if err != nil {
			d.app.Discard(u.File)
			return Taken{}, err
		}
		return takenOf(got.Task, got.Duplicate), nil
	})
}

// earlier finds the task that an earlier attempt has made with a key.
func (d *doors) earlier(ctx context.Context, key tasks.UserKey) (t taskstate.Task, made bool, err error) {
	found, err := sqldb.Read(ctx, d.store, func(ctx context.Context, tx taskstate.Tx) (map[tasks.UserKey]taskstate.Task, error) {
		return d.app.Earlier(ctx, tx, map[tasks.UserKey]bool{key: true})
	})
	t, made = found[key]
	return t, made, err
}

func takenOf(t taskstate.Task, duplicate bool) Taken {
	return Taken{TaskID: t.ID, DocumentID: t.DocumentID, KnowledgeBaseID: t.KnowledgeBase, Duplicate: duplicate}
}

// reported proves that bytes come.
type reported struct {
	io.ReadCloser
	r workflow.Run
}

func (x *reported) Read(p []byte) (int, error) {
	n, err := x.ReadCloser.Read(p)
	if n > 0 {
		x.r.Report(taskstate.Progress{Stage: taskstate.StageRun})
	}
	return n, err
}

// about is the upload of a payload.
func about(p payload, name string) ingest.Upload {
	if p.FileName != "" {
		name = p.FileName
	}
	return ingest.Upload{
		File: ingest.ReceivedFile{Name: name}, Title: p.Title, Metadata: ingest.Metadata(p.Metadata), Base: p.KnowledgeBase,
	}
}

// text opens the payload's own text.
func (d *doors) text(_ context.Context, r workflow.Run, _ *ingest.Caller, p payload) (ingest.Upload, io.ReadCloser, error) {
	if strings.TrimSpace(p.Title) == "" {
		p.Title = Title(p.Text)
	}
	return about(p, "text-"+r.Task.ID+".txt"), io.NopCloser(strings.NewReader(p.Text)), nil
}

// titleLength bounds a title that is made of a text, in characters.
const titleLength = 80

// Title is the first line of a text, or its beginning, with blanks for control characters.
func Title(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return taskstate.Shorten(strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, line)), titleLength)
}

// url opens what is at an address.
func (d *doors) url(ctx context.Context, _ workflow.Run, _ *ingest.Caller, p payload) (ingest.Upload, io.ReadCloser, error) {
	name, body, err := d.fetch.open(ctx, p.URL)
	if err != nil {
		return ingest.Upload{}, nil, err
	}
	return about(p, name), body, nil
}

// again opens the stored file of a document's newest upload; it becomes a new version of the same document, unless another comes
// first.
func (d *doors) again(ctx context.Context, _ workflow.Run, c *ingest.Caller, p payload) (ingest.Upload, io.ReadCloser, error) {
	found, file, err := d.newest(ctx, *c, p.DocumentID)
	if err != nil {
		return ingest.Upload{}, nil, err
	}
	c.Guard = func(current any) error {
		if now, is := current.(ingest.Document); is && now.LatestTaskID != found.LatestTask {
			return ingest.ErrChanged
		}
		return nil
	}
	return ingest.Upload{
		File: ingest.ReceivedFile{Name: found.FileName}, Title: found.Title, Metadata: found.Metadata, DocumentID: found.ID, Again: true, Force: true,
	}, file, nil
}

// newest opens the stored file of the newest upload of a document of the caller's.
func (d *doors) newest(ctx context.Context, c ingest.Caller, document string) (found catalog.DocumentRow, file *os.File, err error) {
	err = d.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) (err error) {
		found, err = d.app.LockDocument(ctx, tx, strings.ToLower(document))
		return err
	})
	if err == nil && found.UserID != c.Scope.UserID {
		err = ingest.ErrDocumentNotFound
	}
	if err != nil {
		return found, nil, err
	}
	last, err := d.store.Get(ctx, c.Scope, found.LatestTask)
	if err != nil {
		return found, nil, fmt.Errorf("read the newest upload of document %s: %w", found.ID, err)
	}
	if file, err = d.app.Folder.Open(last.FilePath); err != nil {
		err = ingest.Permanent(ingest.CodeFileMissing, "Upload the file again.", "open the stored file of document %s: %w", found.ID, err)
	}
	return found, file, err
}

// remove deletes a document.
func (d *doors) remove(ctx context.Context, _ workflow.Run, c ingest.Caller, p payload) (Deleted, error) {
	id := strings.ToLower(p.DocumentID)
	err := d.app.DeleteDocument(ctx, c, id)
	if errors.Is(err, ingest.ErrDocumentNotFound) {
		return Deleted{DocumentID: id}, nil
	}
	return Deleted{DocumentID: id, Deleted: err == nil}, err
}

// fullRest is how long a workflow waits for a backlog to become shorter; that counts no attempt.
const fullRest = 30 * time.Second

// failureOf gives an error of the application its consequence; an error that no table names is tried again.
func failureOf(err error) error {
	var failure *ingest.Failure
	var text *ingest.TextError
	switch {
	case errors.As(err, new(*workflow.Failure)):
		return err
	case errors.As(err, &failure):
		return &workflow.Failure{
			Code: string(failure.Code), Permanent: failure.Permanent, Suspend: failure.Suspend, Throttled: failure.Throttled,
			RetryAfter: failure.RetryAfter, Cause: err.Error(), Message: failure.Remedy,
		}
	case errors.As(err, &text):
		return workflow.Permanent(workflow.CodePayload, text.Error(), "%s", err)
	case errors.Is(err, ingest.ErrTooLarge):
		return workflow.Permanent(string(ingest.CodeLimitExceeded), "It is larger than a document may be.", "%s", err)
	case errors.Is(err, ingest.ErrDocumentNotFound):
		return workflow.Permanent(CodeNoDocument, "There is no such document.", "%s", err)
	case errors.Is(err, ingest.ErrBaseNotFound):
		return workflow.Permanent(CodeNoBase, "There is no such knowledge base.", "%s", err)
	case errors.Is(err, ingest.ErrBacklogFull):
		return &workflow.Failure{
			Code: workflow.CodeThrottle, Throttled: true, RetryAfter: fullRest, Cause: err.Error(), Message: "Too much work is waiting.",
		}
	}
	return err
}
