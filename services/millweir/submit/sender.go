package submit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/client"
)

const (
	// longestPause is how long a gateway may ask to wait; a longer Retry-After is a failure.
	longestPause = 10 * time.Minute
	// noBase is the gateway's code for a knowledge base that does not exist.
	noBase = "KNOWLEDGE_BASE_NOT_FOUND"
	// outcomeUnknown is the gateway's code for a change of which it does not know whether it was made.
	outcomeUnknown = "OUTCOME_UNKNOWN"
)

// sender sends files of one run, by many goroutines, with the journal beside it.
type sender struct {
	api     *client.Client
	journal *journal
	form    map[string]string // fields of every file

	mu   sync.Mutex
	open time.Time // before it nothing is sent: the gateway asked to wait
}

// hopeless is the error that ends a run, when the gateway refused a file for a reason that holds for all others; else nil.
func (s *sender) hopeless(err error) error {
	var refused *client.Error
	switch {
	case !errors.As(err, &refused):
	case cli.RefusalCode(refused) == cli.ExitAuth:
		return err
	case refused.Code == noBase:
		return fmt.Errorf("%w; millweir bases create %s makes it", err, cli.Clean(s.form["knowledgeBase"]))
	}
	return nil
}

// deliver sends a file or asks for an address. A file that the journal knows and that has not changed is not sent; before is its
// task. note hears what goes on.
func (s *sender) deliver(ctx context.Context, src source, note func(string, int)) (t wire.AcceptedTask, before string, err error) {
	if src.path == "" {
		return s.ask(ctx, src.name, note)
	}
	info, err := os.Stat(src.path)
	if err != nil {
		return t, "", err
	}
	if !info.Mode().IsRegular() { // before it is opened: to open a pipe waits for its writer
		return t, "", fmt.Errorf("%s: %w", src.path, client.ErrNoFile)
	}
	path, err := filepath.Abs(src.path)
	if err != nil {
		return t, "", err
	}
	if e, known := s.journal.of(path); known {
		if same, err := e.unchanged(info); err != nil || same {
			return t, e.Task, err
		}
	}
	t, e, err := s.sendFile(ctx, file{path: path, info: info, as: src.as}, note)
	if err == nil && src.as == "" { // standard input has no path to be known by
		s.journal.accept(e, false)
	}
	return t, "", err
}

// file is one to be sent.
type file struct {
	path, as string // absolute; the name under which it is sent, empty: its own
	info     os.FileInfo
	document string // of which it becomes a new version; empty: of none
	after    string // the task of the content before: the same content may come again
}

// sendFile sends a file and returns its entry for the journal.
func (s *sender) sendFile(ctx context.Context, f file, note func(string, int)) (t wire.AcceptedTask, e entry, err error) {
	sum, err := hashFile(f.path)
	if err != nil {
		return t, e, err
	}
	form := s.form
	if f.document != "" { // it is in its base already
		form = maps.Clone(form)
		delete(form, "knowledgeBase")
	}
	sent := client.File{
		Path: f.path, Name: f.as, Fields: form,
		Key:  s.journal.keyOf(f.path, sum, s.form["knowledgeBase"], s.form["title"], s.form["metadata"], s.form["force"], f.document, f.after),
		Sent: func(bytes int64) { note("sending", int(bytes*100/max(f.info.Size(), 1))) },
	}
	err = s.again(ctx, note, func() error {
		if f.document != "" {
			t, err = s.api.Replace(ctx, f.document, sent)
		} else {
			t, err = s.api.Upload(ctx, sent)
		}
		return err
	})
	e = entry{Path: f.path, Size: f.info.Size(), MTime: f.info.ModTime().UnixNano(), SHA256: sum, Task: t.TaskID, Document: string(t.DocumentID)}
	return t, e, err
}

// ask has the gateway fetch an address (workflow ingest.url).
func (s *sender) ask(ctx context.Context, address string, note func(string, int)) (t wire.AcceptedTask, before string, err error) {
	if e, known := s.journal.of(address); known {
		return t, e.Task, nil
	}
	payload := map[string]any{"url": address}
	for _, field := range []string{"knowledgeBase", "title"} {
		if v := s.form[field]; v != "" {
			payload[field] = v
		}
	}
	if s.form["metadata"] != "" {
		payload["metadata"] = json.RawMessage(s.form["metadata"])
	}
	body, err := json.Marshal(payload)
	if err != nil {
		return t, "", err
	}
	no := false
	wish := wire.WorkflowApply{WorkflowID: "ingest.url", ChatID: "cli", Payload: body, IdempotencyKey: s.journal.keyOf(address), WaitForResult: &no}
	var got wire.WorkflowReply
	if err := s.again(ctx, note, func() error { return s.api.Post(ctx, cli.ApplyPath, wish, &got) }); err != nil {
		return t, "", err
	}
	if t.Task, err = s.api.Task(ctx, got.Data.TaskID); err != nil { // accepted it is all the same
		t.Task = wire.Task{TaskID: got.Data.TaskID, Status: got.Data.Status}
	}
	t.FileName = address
	s.journal.accept(entry{Path: address, Task: t.TaskID}, false)
	return t, "", nil
}

// again repeats a request for as long as the gateway asks to wait; all others wait with it.
func (s *sender) again(ctx context.Context, note func(string, int), request func() error) error {
	for unknown := 0; ; {
		if err := s.pause(ctx); err != nil {
			return err
		}
		err := request()
		var refused *client.Error
		if !errors.As(err, &refused) || (refused.Status != http.StatusTooManyRequests && refused.Status != http.StatusServiceUnavailable) {
			return err
		}
		wait := time.Duration(min(max(refused.RetryAfter, 0), int(2*longestPause/time.Second))) * time.Second
		if refused.Code == outcomeUnknown && unknown < 3 { // with the same key it is done once
			unknown++
			wait = max(wait, time.Second)
		} else if wait == 0 || wait > longestPause {
			return err
		}
		if end, limited := ctx.Deadline(); limited && time.Until(end) < wait {
			return err // it would be for nothing
		}
		note(fmt.Sprintf("waits %s: %s", wait, cli.Clean(refused.Code)), 0)
		s.mu.Lock()
		if until := time.Now().Add(wait); until.After(s.open) {
			s.open = until
		}
		s.mu.Unlock()
	}
}

// pause waits until something may be sent.
func (s *sender) pause(ctx context.Context) error {
	for {
		s.mu.Lock()
		left := time.Until(s.open)
		s.mu.Unlock()
		if left <= 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(left):
		}
	}
}

// fetched is the task of the document that the gateway made of an address.
func (s *sender) fetched(ctx context.Context, workflowTask string) (string, error) {
	var got wire.WorkflowReply
	if err := s.api.Get(ctx, "/api/workflows/tasks/"+url.PathEscape(workflowTask), &got); err != nil {
		return "", err
	}
	var made struct {
		TaskID string `json:"taskId"`
	}
	if err := json.Unmarshal(got.Data.Result, &made); err != nil || made.TaskID == "" {
		return "", errors.Join(fmt.Errorf("read the result of task %s", workflowTask), err)
	}
	return made.TaskID, nil
}
