package apiclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/scripts/lab/await"
)

// Call is one request as its client saw it.
type Call struct {
	Op        string // upload, replace, apply, delete, cancel, retry, suspend, resume, task, explain, search, list, base, stats, other
	User      string
	Key       string // Idempotency-Key
	BodyHash  string // hex SHA-256 of an uploaded file
	Began     time.Time
	Ended     time.Time
	Status    int    // of HTTP; 0: no answer
	Code      string // of a refusal
	Task      string // asked for, or answered
	Document  string // asked for, or answered
	Duplicate bool
	Replayed  bool
	Hits      []Hit // of a search, without their texts
	Err       error // why there was no whole answer
}

// request is what a call sends.
type request struct {
	method, path string
	header       http.Header
	body         io.Reader
	said         Call // what is known of it beforehand
}

// Upload sends a document by upload-async.
// Errors: *StatusError when the gateway answered; anything else means that the outcome is unknown.
func (c *Client) Upload(ctx context.Context, d Doc) (Task, error) {
	return c.sendFile(ctx, request{method: http.MethodPost, path: "/api/knowledge/documents/upload-async", said: Call{Op: "upload"}}, d)
}

// Force is Upload with force=true: bytes that are there already become a new version.
func (c *Client) Force(ctx context.Context, d Doc) (Task, error) {
	return c.sendFile(ctx, request{method: http.MethodPost, path: "/api/knowledge/documents/upload-async?force=true", said: Call{Op: "upload"}}, d)
}

// Replace sends a new version of a document. Errors as Upload.
func (c *Client) Replace(ctx context.Context, document string, d Doc) (Task, error) {
	d.Base = "" // it stays where it is
	return c.sendFile(ctx, request{method: http.MethodPut, path: "/api/knowledge/documents/" + document, said: Call{Op: "replace", Document: document}}, d)
}

// Rollback makes a new version of the content that a document had before. Errors as Upload.
func (c *Client) Rollback(ctx context.Context, document string) (t Task, err error) {
	err = c.call(ctx, request{
		method: http.MethodPost, path: "/api/knowledge/documents/" + document + "/rollback", header: jsonHeader(), body: strings.NewReader("{}"),
		said: Call{Op: "replace", Document: document},
	}, &t, func(said *Call) { said.Task, said.Document, said.Duplicate = t.TaskID, t.DocumentID, t.Duplicate })
	return t, err
}

// sendFile sends one file in a form.
func (c *Client) sendFile(ctx context.Context, r request, d Doc) (Task, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if d.Base != "" {
		if err := form.WriteField("knowledgeBase", d.Base); err != nil {
			return Task{}, err
		}
	}
	part, err := form.CreateFormFile("file", d.Name)
	if err != nil {
		return Task{}, err
	}
	if _, err := part.Write(d.Body); err != nil {
		return Task{}, err
	}
	if err := form.Close(); err != nil {
		return Task{}, err
	}
	r.header = http.Header{"Content-Type": {form.FormDataContentType()}}
	if d.Key != "" {
		r.header.Set("Idempotency-Key", d.Key)
	}
	r.body, r.said.Key, r.said.BodyHash = &body, d.Key, d.Hash()
	var t Task
	err = c.call(ctx, r, &t, func(said *Call) {
		said.Task, said.Document, said.Duplicate, said.Replayed = t.TaskID, t.DocumentID, t.Duplicate, t.Replayed
	})
	if err == nil && t.TaskID == "" {
		err = fmt.Errorf("upload of %s: answered without a task", d.Name)
	}
	return t, err
}

// Delete removes a document.
func (c *Client) Delete(ctx context.Context, document string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/api/knowledge/documents/" + document, said: Call{Op: "delete", Document: document}}, nil, nil)
}

// Task reads a task.
func (c *Client) Task(ctx context.Context, id string) (t Task, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: "/api/knowledge/tasks/" + id, said: Call{Op: "task", Task: id}}, &t, nil)
	return t, err
}

// Await looks at a task every so often until it has a status, or with "" until it has ended. Errors: await.ErrTimeout with how it is.
func (c *Client) Await(ctx context.Context, id string, want taskstate.Status, limit, every time.Duration) (t Task, err error) {
	err = await.Until(ctx, limit, every, func(ctx context.Context) (err error) {
		if t, err = c.Task(ctx, id); err == nil && t.Status != want && (want != "" || !t.Status.Terminal()) {
			err = fmt.Errorf("task %s is %s: %s", id, t.Status, t.LastError)
		}
		return err
	})
	return t, err
}

// Do sends a request without a body; what a 2xx answer says is not read.
func (c *Client) Do(ctx context.Context, method, path string) error {
	return c.call(ctx, request{method: method, path: path, said: Call{Op: "other"}}, nil, nil)
}

// Retry asks for a task to run again now.
func (c *Client) Retry(ctx context.Context, task string) error {
	return c.act(ctx, "retry", "/api/knowledge/tasks/"+task+"/retry", task)
}

// Cancel withdraws a task.
func (c *Client) Cancel(ctx context.Context, task string) error {
	return c.act(ctx, "cancel", "/api/knowledge/tasks/"+task+"/cancel", task)
}

// Suspend holds a task; its caller is an operator.
func (c *Client) Suspend(ctx context.Context, task string) error {
	return c.act(ctx, "suspend", "/internal/tasks/"+task+"/suspend", task)
}

// Resume lets a held task go; its caller is an operator.
func (c *Client) Resume(ctx context.Context, task string) error {
	return c.act(ctx, "resume", "/internal/tasks/"+task+"/resume", task)
}

func (c *Client) act(ctx context.Context, op, path, task string) error {
	return c.call(ctx, request{method: http.MethodPost, path: path, said: Call{Op: op, Task: task}}, nil, nil)
}

// Explain is what the API says in words about a task.
func (c *Client) Explain(ctx context.Context, id string) (string, error) {
	var e struct {
		Text string `json:"text"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/api/knowledge/tasks/" + id + "/explain", said: Call{Op: "explain", Task: id}}, &e, nil)
	return e.Text, err
}

// List reads one page of any list and returns its rows.
func (c *Client) List(ctx context.Context, path string) ([]json.RawMessage, error) {
	var page struct {
		Items []json.RawMessage `json:"items"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: path, said: Call{Op: "list"}}, &page, nil)
	return page.Items, err
}

// CreateBase makes a knowledge base.
func (c *Client) CreateBase(ctx context.Context, name string) error {
	body, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return err
	}
	return c.call(ctx, request{
		method: http.MethodPost, path: "/api/knowledge/bases", header: jsonHeader(), body: bytes.NewReader(body), said: Call{Op: "base"},
	}, nil, nil)
}

// Search asks for the k best segments of a base; "" is the default base.
func (c *Client) Search(ctx context.Context, base, query string, k int) ([]Hit, error) {
	return c.SearchBy(ctx, "auto", base, query, k)
}

// SearchBy is Search in a mode.
func (c *Client) SearchBy(ctx context.Context, mode, base, query string, k int) ([]Hit, error) {
	if base == "" {
		base = "default"
	}
	body, err := json.Marshal(map[string]any{"query": query, "knowledgeBase": base, "topK": k, "mode": mode})
	if err != nil {
		return nil, err
	}
	var out struct {
		Hits []Hit `json:"hits"`
	}
	err = c.call(ctx, request{
		method: http.MethodPost, path: "/api/knowledge/search", header: jsonHeader(), body: bytes.NewReader(body), said: Call{Op: "search"},
	}, &out, func(said *Call) { said.Hits = out.Hits })
	return out.Hits, err
}

// Run is a task of a workflow.
type Run struct {
	TaskID string
	Status taskstate.Status
}

// Apply asks for a workflow in a chat, and returns its task; wait: when that has ended, or after the gateway's own time.
func (c *Client) Apply(ctx context.Context, workflow, chat string, wait bool) (Run, error) {
	body, err := json.Marshal(map[string]any{"workflowId": workflow, "chatId": chat, "waitForResult": wait})
	if err != nil {
		return Run{}, err
	}
	var out struct{ Data Run }
	err = c.call(ctx, request{
		method: http.MethodPost, path: "/api/workflows/apply", header: jsonHeader(), body: bytes.NewReader(body), said: Call{Op: "apply"},
	}, &out, func(said *Call) { said.Task = out.Data.TaskID })
	return out.Data, err
}

// Bulk begins a bulk operation.
func (c *Client) Bulk(ctx context.Context, r wire.BulkRequest) (op wire.BulkOperation, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return op, err
	}
	err = c.call(ctx, request{
		method: http.MethodPost, path: bulkPath, header: jsonHeader(), body: bytes.NewReader(body), said: Call{Op: "apply"},
	}, &op, func(said *Call) { said.Task = op.OperationID })
	return op, err
}

// Operation reads a bulk operation.
func (c *Client) Operation(ctx context.Context, id string) (op wire.BulkOperation, err error) {
	err = c.call(ctx, request{method: http.MethodGet, path: bulkPath + "/" + id, said: Call{Op: "other"}}, &op, nil)
	return op, err
}

const bulkPath = "/api/knowledge/bulk"

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

// call sends a request, decodes a 2xx answer into out (nil: nobody wants it) and tells the journal; answered adds what out says.
func (c *Client) call(ctx context.Context, r request, out any, answered func(*Call)) error {
	r.said.User, r.said.Began = c.user, time.Now()
	err := c.exchange(ctx, r, &r.said, out)
	r.said.Ended = time.Now()
	var refused *StatusError
	if errors.As(err, &refused) {
		r.said.Code = refused.Code
	} else {
		r.said.Err = err
	}
	if err == nil && answered != nil {
		answered(&r.said)
	}
	if c.note != nil {
		c.note(r.said)
	}
	return err
}

// send is one request and the whole of its answer.
func (c *Client) send(ctx context.Context, r request) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, r.body)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(req.Header, r.header)
	c.authorize(req)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: read the answer: %w", r.method, r.path, err)
	}
	return res, b, nil
}

// exchange is send with the answer read into out; said gets its status. Errors: *StatusError unless it is 2xx.
func (c *Client) exchange(ctx context.Context, r request, said *Call, out any) error {
	res, b, err := c.send(ctx, r) //nolint:bodyclose // send does
	if err != nil {
		return err
	}
	said.Status = res.StatusCode
	if res.StatusCode/100 != 2 {
		e := &StatusError{Message: string(b)}
		_ = json.Unmarshal(b, e) // not JSON: the text is shown as it came
		e.Status = res.StatusCode
		seconds, _ := strconv.ParseFloat(res.Header.Get("Retry-After"), 64)
		e.RetryAfter = time.Duration(seconds * float64(time.Second))
		return e
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	return nil
}

// Record is a call as a line of a client log.
func (c Call) Record() fsck.ClientRecord {
	r := fsck.ClientRecord{
		Op: opOf(c.Op), User: c.User, Key: c.Key, BodyHash: c.BodyHash, Began: c.Began, Ended: c.Ended, Status: c.Status, Code: c.Code,
		Task: c.Task, Document: c.Document, Duplicate: c.Duplicate, Replayed: c.Replayed, Outcome: fsck.OutcomeRefused,
	}
	switch {
	case c.Code == "BACKLOG_FULL", c.Code == "SHUTTING_DOWN": // said before anything was done
	case c.Err != nil, c.Status >= http.StatusInternalServerError:
		r.Outcome = fsck.OutcomeMaybe // nobody knows how far it came
	case c.Status/100 == 2:
		r.Outcome = fsck.OutcomeOK
	}
	for _, h := range c.Hits {
		r.Hits = append(r.Hits, fsck.Hit{Document: h.DocumentID, Version: h.Version})
	}
	return r
}

// opOf is the record's word for an operation.
func opOf(op string) string {
	switch op {
	case fsck.OpUpload, fsck.OpReplace, fsck.OpApply, fsck.OpDelete, fsck.OpCancel, fsck.OpRetry, fsck.OpSuspend, fsck.OpResume, fsck.OpSearch:
		return op
	}
	return fsck.OpRead
}

// Record is an event as a line of a client log.
func (e Event) Record(watcher, user string) fsck.ClientRecord {
	return fsck.ClientRecord{
		Op: fsck.OpEvent, User: user, Began: e.At, Ended: e.At, Outcome: fsck.OutcomeOK, Watcher: watcher,
		Task: e.TaskID, Transition: e.ID, State: string(e.Status), Attempt: e.AttemptCount, Crashes: e.CrashCount,
	}
}

// Counts asks for the tasks by status.
func (c *Client) Counts(ctx context.Context) (map[taskstate.Status]int64, error) {
	var stats struct {
		Counts map[taskstate.Status]int64 `json:"counts"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/internal/tasks/stats", said: Call{Op: "stats"}}, &stats, nil)
	return stats.Counts, err
}
