package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/wire"
)

var (
	// ErrAddress says that Base is no address.
	ErrAddress = errors.New("not an address")
	// ErrNoAnswer says that nobody answered there.
	ErrNoAnswer = errors.New("no answer")
	// ErrNoFile says that what was to be sent is not a regular file.
	ErrNoFile = errors.New("not a regular file")
)

const (
	// again is the pause before a broken event stream is taken up again.
	again = time.Second
	// maxEvent bounds one line of an event stream.
	maxEvent = 1 << 20
)

// TaskPath is the address of a task, or of a step or part of it.
func TaskPath(id string, rest ...string) string {
	return strings.Join(append([]string{"/api/knowledge/tasks", url.PathEscape(id)}, rest...), "/")
}

// Task reads one task.
func (c *Client) Task(ctx context.Context, id string) (t wire.Task, err error) {
	return t, c.Get(ctx, TaskPath(id), &t)
}

// Watch follows a task by its events until it ends; a broken stream is taken up again where it was.
func (c *Client) Watch(ctx context.Context, id string, seen func(wire.Task)) (wire.Task, error) {
	w := &watch{client: c, id: id, seen: seen}
	for {
		ended, err := w.stream(ctx)
		var refused *Error
		switch {
		case ended:
			return w.last, nil
		case ctx.Err() != nil:
			return w.last, ctx.Err()
		case errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests:
			return w.last, err
		}
		select {
		case <-ctx.Done():
			return w.last, ctx.Err()
		case <-time.After(again):
		}
	}
}

// watch is one task being followed.
type watch struct {
	client *Client
	id     string
	seen   func(wire.Task)
	lastID string    // of the last event
	last   wire.Task // the last state
}

// stream reads one event stream to its end; ended says that the task has ended.
func (w *watch) stream(ctx context.Context) (ended bool, err error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if w.lastID != "" {
		header.Set("Last-Event-ID", w.lastID)
	}
	res, err := w.client.send(ctx, http.MethodGet, TaskPath(w.id, "events"), "", nil, header)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNoContent {
		w.last, err = w.client.Task(ctx, w.id)
		return err == nil, err
	}
	if !isKind(res, "text/event-stream") {
		return false, w.client.refusal(res)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			w.lastID = value
		case "data":
			w.last = wire.Task{}
			if err := json.Unmarshal([]byte(value), &w.last); err != nil {
				return false, fmt.Errorf("read event: %w", err)
			}
			w.seen(w.last)
			if w.last.Status.Terminal() {
				return true, nil
			}
		}
	}
	return false, lines.Err()
}

// File is what is sent: a regular file with what is said of it.
type File struct {
	Path   string
	Name   string            // as which it is sent; empty: the last element of Path
	Fields map[string]string // form fields; empty ones are not sent
	Key    string            // Idempotency-Key; empty: none
	Sent   func(bytes int64) // hears how much of it was read so far, from another goroutine; nil: nobody
}

// Upload streams one file to the gateway, never whole in memory.
func (c *Client) Upload(ctx context.Context, f File) (wire.AcceptedTask, error) {
	return c.sendFile(ctx, http.MethodPost, "/api/knowledge/documents/upload-async", f)
}

// Replace makes a file the new version of a document.
func (c *Client) Replace(ctx context.Context, documentID string, f File) (wire.AcceptedTask, error) {
	return c.sendFile(ctx, http.MethodPut, DocumentPath(documentID), f)
}

// DocumentPath is the address of a document, or of a step or part of it.
func DocumentPath(id string, rest ...string) string {
	return strings.Join(append([]string{"/api/knowledge/documents", url.PathEscape(id)}, rest...), "/")
}

func (c *Client) sendFile(ctx context.Context, method, path string, f File) (t wire.AcceptedTask, err error) {
	// Before it is opened: to open a pipe waits for its writer.
	info, err := os.Stat(f.Path)
	if err != nil {
		return t, err
	}
	if !info.Mode().IsRegular() {
		return t, fmt.Errorf("%s: %w", f.Path, ErrNoFile)
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return t, err
	}
	defer func() { _ = file.Close() }()
	header := http.Header{}
	if f.Key != "" {
		header.Set("Idempotency-Key", f.Key)
	}
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.CloseWithError(writeForm(form, &counted{Reader: file, sent: f.Sent}, cmp.Or(f.Name, filepath.Base(f.Path)), f.Fields))
	}()
	defer func() { _ = r.Close(); <-written }() // nobody is told of bytes after the end
	return t, c.do(ctx, method, path, form.FormDataContentType(), r, header, &t)
}

// counted tells how much was read.
type counted struct {
	io.Reader
	sent  func(int64)
	bytes int64
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.bytes += int64(n); c.sent != nil {
		c.sent(c.bytes)
	}
	return n, err
}

// writeForm writes the fields and then the file.
func writeForm(form *multipart.Writer, file io.Reader, name string, fields map[string]string) error {
	for field, value := range fields {
		if value == "" {
			continue
		}
		if err := form.WriteField(field, value); err != nil {
			return err
		}
	}
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(part, file); err != nil {
		return err
	}
	return form.Close()
}
