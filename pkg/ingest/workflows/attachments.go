package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

const attachmentsSchema = `{"type": "object", "additionalProperties": false, "required": ["documentId", "taskId"], "properties": {
	"documentId": {"type": "string", "format": "uuid"}, "taskId": {"type": "string", "format": "uuid"}}}`

// CodeNoMessage is of a message that was not ingested, so that its attachments are not; permanent.
const CodeNoMessage = "MESSAGE_NOT_INGESTED"

// Attached is the result of ingest.attachments.
type Attached struct {
	Attachments int `json:"attachments"` // of the message
	Accepted    int `json:"accepted"`    // that became documents
	Unchanged   int `json:"unchanged"`   // that the message's documents were already
	Refused     int `json:"refused"`
	Removed     int `json:"removed"` // documents of attachments that this version does not have
	// Skipped: the message was deleted, or a later version of it is visible, whose own task takes the attachments in.
	Skipped bool           `json:"skipped,omitempty"`
	Entries []UnpackedFile `json:"entries"` // in the message's order, as many as have room; those that were refused come first
	More    int            `json:"more,omitempty"`
}

const (
	// maxAncestors bounds how many messages lie around an attachment: one of a message that is attached to a message.
	maxAncestors = 4
	// The rests between two looks at a message that is not visible yet: as long as it has waited, within bounds.
	minMessageRest = time.Second
	maxMessageRest = time.Minute
)

// errOutdated: the message was deleted, or a later version of it is visible.
var errOutdated = errors.New("the message is deleted, or a later version of it is visible")

// errKept: a later version of the message has the attachment too.
var errKept = errors.New("a later version of the message has the attachment")

// attaching is one attempt.
type attaching struct {
	*doors
	run       workflow.Run
	caller    ingest.Caller
	message   ingest.Parent
	task      taskstate.Task // the message's
	metadata  ingest.Metadata
	ancestors int                  // of the attachments
	before    []catalog.Attachment // documents that no attachment was found for yet
	result    Attached
	fine      []UnpackedFile
}

// attach makes a document of each attachment of a message, once the version that has them is visible. What an attempt has made that broke
// off is found again: by its key, and as an unchanged attachment. Documents of attachments that this version does not have are deleted.
func (d *doors) attach(ctx context.Context, r workflow.Run, c ingest.Caller, p ingest.Carrying) (Attached, error) {
	if d.worker == nil {
		return Attached{}, errors.New("this process reads no documents")
	}
	x := &attaching{doors: d, run: r, caller: c, message: ingest.Parent{ID: p.DocumentID}, result: Attached{Entries: []UnpackedFile{}}}
	err := x.visible(ctx, p.TaskID)
	if err == nil {
		err = x.all(ctx)
	}
	if errors.Is(err, errOutdated) {
		x.result.Skipped, err = true, nil
	}
	x.result.Entries, x.result.More = bounded(append(x.result.Entries, x.fine...))
	return x.result, err
}

// visible reads the message's version. Errors: errOutdated; THROTTLED while it is not visible yet; MESSAGE_NOT_INGESTED.
func (x *attaching) visible(ctx context.Context, task string) (err error) {
	// The task first: one that has ended so has made its version visible.
	if x.task, err = x.store.Get(ctx, x.caller.Scope, task); err != nil && !errors.Is(err, taskstate.ErrNotFound) {
		return err
	}
	no, visible, err := x.app.VersionOfTask(ctx, x.caller.Scope.UserID, x.message.ID, task)
	switch {
	case errors.Is(err, ingest.ErrDocumentNotFound), err == nil && visible > no:
		return errOutdated
	case err != nil:
		return err
	case visible == no:
		x.message.No = no
		return nil
	case x.task.Status == taskstate.StatusDead || x.task.Status == taskstate.StatusCancelled:
		return workflow.Permanent(CodeNoMessage, "The message was not ingested. Retry its task, and then this one.",
			"task %s of the message is %s", task, x.task.Status)
	}
	moment, err := x.store.Moment(ctx)
	if err != nil {
		return err
	}
	return &workflow.Failure{
		Code: workflow.CodeThrottle, Throttled: true, RetryAfter: min(max(moment.Now.Sub(x.run.Task.CreatedAt), minMessageRest), maxMessageRest),
		Cause: "the message is " + string(x.task.Status), Message: "The message is not ingested yet.",
	}
}

// all takes the attachments in, one after the other.
func (x *attaching) all(ctx context.Context) error {
	var asked ingest.Payload
	if err := json.Unmarshal(x.task.Payload, &asked); err != nil {
		return fmt.Errorf("read the message's task %s: %w", x.task.ID, err)
	}
	var err error
	if x.metadata, err = ingest.ParseMetadata("metadata", string(asked.Metadata)); err != nil {
		return err
	}
	if x.ancestors, err = x.app.Ancestors(ctx, x.message.ID, maxAncestors); err != nil {
		return err
	}
	x.ancestors++
	if x.before, err = x.app.Attachments(ctx, x.message.ID); err != nil {
		return err
	}
	file, err := x.app.Folder.Open(x.task.FilePath)
	if errors.Is(err, fs.ErrNotExist) {
		err = ingest.Permanent(ingest.CodeFileMissing, "Upload the message again.", "open the stored message %s: %w", x.message.ID, err)
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	report := func(int, int) {
		x.run.Report(taskstate.Progress{Stage: taskstate.StageRun, Processed: x.result.Attachments})
	}
	source := ingest.Source{File: file, Name: asked.FileName, MediaType: asked.MediaType}
	if err := x.worker.Attachments(ctx, source, report, func(name string, r io.Reader) error {
		report(0, 0)
		return x.one(ctx, name, r)
	}); err != nil {
		return err
	}
	return x.removeOthers(ctx)
}

// one takes an attachment in. Errors end the attempt; what is wrong with this attachment alone stands in its line.
func (x *attaching) one(ctx context.Context, name string, r io.Reader) error {
	x.result.Attachments++
	line := UnpackedFile{Name: shortened(name)}
	document, task, err := x.document(ctx, name, r)
	switch refusal := refusalOf(err); {
	case err == nil:
		line.DocumentID, line.TaskID, line.Duplicate = document, task, task == ""
		if x.result.Accepted++; line.Duplicate {
			x.result.Accepted--
			x.result.Unchanged++
		}
		x.fine = append(x.fine, line)
	case refusal == nil || ctx.Err() != nil:
		return err
	default:
		line.Error = refusal
		x.result.Refused++
		x.result.Entries = append(x.result.Entries, line)
	}
	return nil
}

// document finds or makes the document of an attachment; task is empty when it was there.
func (x *attaching) document(ctx context.Context, name string, r io.Reader) (document, task string, err error) {
	if x.ancestors > maxAncestors {
		return "", "", ingest.Permanent(ingest.CodeLimitExceeded, "Upload the attachment by itself.", "it lies in more than %d messages", maxAncestors)
	}
	key := tasks.UserKey{User: x.caller.Scope.UserID, Key: fmt.Sprintf("workflow:%s:%d", x.run.Key, x.result.Attachments)}
	if x.run.Task.Fence > 1 {
		if t, made, err := x.earlier(ctx, key); made || err != nil {
			x.before = slices.DeleteFunc(x.before, func(a catalog.Attachment) bool { return a.ID == t.DocumentID })
			return t.DocumentID, t.ID, err
		}
	}
	file, err := x.app.ReceiveAttachment(ctx, r, name)
	if err != nil {
		return "", "", err
	}
	same := slices.IndexFunc(x.before, func(a catalog.Attachment) bool {
		return a.SHA256 == file.SHA256 && a.FileName == file.Name && a.Metadata == x.metadata
	})
	if same >= 0 {
		x.app.Discard(file)
		document = x.before[same].ID
		x.before = slices.Delete(x.before, same, same+1)
		return document, "", x.app.KeepAttachment(ctx, document, x.message)
	}
	crash.Point("attachments.before_document")
	got, err := x.app.Accept(ctx, x.caller, ingest.Upload{
		File: file, Metadata: x.metadata, Base: x.task.KnowledgeBase, IdempotencyKey: key.Key, Parent: x.message,
	})
	crash.Point("attachments.after_document")
	if err != nil {
		x.app.Discard(file)
	}
	if errors.Is(err, ingest.ErrDocumentNotFound) || errors.Is(err, ingest.ErrBaseNotFound) || errors.Is(err, ingest.ErrChanged) {
		err = errOutdated
	}
	return got.Task.DocumentID, got.Task.ID, err
}

// removeOthers deletes the documents of attachments that only earlier versions of the message had.
func (x *attaching) removeOthers(ctx context.Context) error {
	c := x.caller
	c.Guard = func(current any) error {
		if now, is := current.(ingest.Document); is && now.Parent.No >= x.message.No {
			return errKept
		}
		return nil
	}
	crash.Point("attachments.before_removal")
	for _, a := range x.before {
		switch err := x.app.DeleteDocument(ctx, c, a.ID); {
		case err == nil:
			x.result.Removed++
		case errors.Is(err, errKept), errors.Is(err, ingest.ErrDocumentNotFound):
		default:
			return err
		}
	}
	return nil
}
