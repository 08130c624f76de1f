package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
)

// uploadThere sends a document to the armed gateway, which may be gone before it answers.
func uploadThere(ctx context.Context, t *trial) error { return t.send(ctx, t.doc(smallDoc)) }

// claimBytes is the length up to which a request may be received before it claims its key (contract §4).
const claimBytes = 1 << 20

// uploadKeyed is uploadThere with an idempotency key, and too long to be received before it claims that.
func uploadKeyed(ctx context.Context, t *trial) error {
	d := t.doc(smallDoc)
	d.Key, d.Body = d.Name, append(d.Body, bytes.Repeat([]byte("\n"), claimBytes)...)
	return t.send(ctx, d)
}

// send is one upload at the armed gateway.
func (t *trial) send(ctx context.Context, d apiclient.Doc) error {
	t.more = append(t.more, d)
	if task, err := t.there().Upload(ctx, d); err == nil {
		t.load.Accepted[task.TaskID] = d
	}
	return nil // whatever it was: the client repeats it
}

// there is a client of the armed gateway.
func (t *trial) there() *apiclient.Client { return apiclient.NewClient(t.armed.HTTP) }

// damaged is a finished document whose stored file is lost.
func damaged(ctx context.Context, t *trial) error {
	if err := steps(uploads(1, smallDoc), finished)(ctx, t); err != nil {
		return err
	}
	var path string
	err := t.DB.Reader().QueryRowContext(ctx, `SELECT f.path FROM stored_file f JOIN document_version v ON v.file_id = f.id
		WHERE v.document_id = ?`, t.docs[0].document).Scan(&path)
	if err != nil {
		return fmt.Errorf("look for the document's file: %w", err)
	}
	return os.Remove(filepath.Join(t.Uploads(), path))
}

// uploadSameThere sends the bytes of the trial's document once more: the gateway puts them in the lost file's place.
func uploadSameThere(ctx context.Context, t *trial) error {
	d := t.docs[0].Doc
	t.more = append(t.more, d)
	_, _ = t.there().Upload(ctx, d) // it may be gone before it returns: the client repeats it
	return nil
}

// uploadAgain repeats what had no answer, at the other gateway: the audit finds a second task for one document.
func uploadAgain(ctx context.Context, t *trial) error {
	for _, d := range t.more {
		if err := t.insist(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// deleteThere deletes the trial's documents at the armed gateway.
func deleteThere(ctx context.Context, t *trial) error {
	for _, d := range t.docs {
		_ = t.there().Delete(ctx, d.document) // it may be gone before it answers: deleteAgain repeats it
	}
	return nil
}

// deleteHere deletes them at the lane's gateway.
func deleteHere(ctx context.Context, t *trial) error {
	for _, d := range t.docs {
		if err := unless(t.client.Delete(ctx, d.document), http.StatusNotFound); err != nil {
			return err
		}
	}
	return nil
}

// deleteAgain repeats the deletion and waits until nothing is left.
func deleteAgain(ctx context.Context, t *trial) error {
	if err := deleteHere(ctx, t); err != nil {
		return err
	}
	if err := t.cancelledOrDone(ctx); err != nil {
		return err
	}
	return gone(ctx, t)
}

// cancelledOrDone takes the tasks of deleted documents as they ended: both ends are right, and the chain is judged all the same.
func (t *trial) cancelledOrDone(ctx context.Context) error {
	for _, d := range t.docs {
		task, err := t.client.Task(ctx, d.task)
		if err != nil {
			return err
		}
		if task.Status == taskstate.StatusCancelled {
			t.want[d.task] = taskstate.StatusCancelled
		}
	}
	return nil
}

// baseOfOne makes a base with one document that waits.
func baseOfOne(ctx context.Context, t *trial) error {
	if err := t.client.CreateBase(ctx, t.base()); err != nil {
		return err
	}
	d := t.doc(smallDoc)
	d.Base = t.base()
	s, err := t.upload(ctx, d)
	t.docs = append(t.docs, s)
	return err
}

// base is the name of the trial's own base.
func (t *trial) base() string { return "base of " + t.at.name }

// basePath is the address of the trial's own base.
func (t *trial) basePath() string {
	return "/api/knowledge/bases/base%20of%20" + t.at.name + "?cascade=true"
}

func deleteBaseThere(ctx context.Context, t *trial) error {
	_ = t.there().Do(ctx, http.MethodDelete, t.basePath()) // deleteBaseAgain repeats it
	return nil
}

func deleteBaseHere(ctx context.Context, t *trial) error {
	return unless(t.client.Do(ctx, http.MethodDelete, t.basePath()), http.StatusNotFound)
}

func deleteBaseAgain(ctx context.Context, t *trial) error {
	if err := deleteBaseHere(ctx, t); err != nil {
		return err
	}
	if err := gone(ctx, t); err != nil {
		return err
	}
	return t.cancelledOrDone(ctx)
}

// replayThere asks the armed gateway to run the trial's dead task again.
func replayThere(ctx context.Context, t *trial) error {
	_ = t.there().Retry(ctx, t.docs[0].task) // replayAgain repeats it
	return nil
}

// replayAgain repeats it; a task that is on its way again refuses.
func replayAgain(ctx context.Context, t *trial) error {
	return unless(t.client.Retry(ctx, t.docs[0].task), http.StatusConflict)
}

// findDeadLetter finds a dead letter of the trial's task. Its death may have two: what settles pending entries writes one again while
// the first one's mark is under way.
func findDeadLetter(ctx context.Context, t *trial) error {
	letters, err := t.client.List(ctx, "/internal/dlq?task="+t.docs[0].task)
	if err == nil && len(letters) == 0 {
		err = fmt.Errorf("task %s has no dead letter", t.docs[0].task)
	}
	if err != nil {
		return err
	}
	var letter struct {
		ID string `json:"id"`
	}
	err = json.Unmarshal(letters[0], &letter)
	t.deadLetter = letter.ID
	return err
}

// replayDeadLetterThere replays the dead letter at the armed gateway.
func replayDeadLetterThere(ctx context.Context, t *trial) error {
	_ = t.there().Do(ctx, http.MethodPost, "/internal/dlq/letters/"+t.deadLetter+"/replay") // replayDeadLetterAgain repeats it
	return nil
}

// replayDeadLetterAgain repeats it at the lane's gateway, which must refuse and leave no entry behind.
func replayDeadLetterAgain(ctx context.Context, t *trial) error {
	path := "/internal/dlq/letters/" + t.deadLetter
	if err := unless(t.client.Do(ctx, http.MethodPost, path+"/replay"), http.StatusConflict, http.StatusNotFound); err != nil {
		return err
	}
	if t.client.Do(ctx, http.MethodGet, path) == nil {
		return fmt.Errorf("the entry %s of a replayed letter is still there", t.deadLetter)
	}
	return nil
}
