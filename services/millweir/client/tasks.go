package client

import (
	"bufio"
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

// Upload streams one file to the gateway, never whole in memory. Empty fields are not sent.
func (c *Client) Upload(ctx context.Context, path string, fields map[string]string) (t wire.AcceptedTask, err error) {
	// Before it is opened: to open a pipe waits for its writer.
	info, err := os.Stat(path)
	if err != nil {
		return t, err
	}
	if !info.Mode().IsRegular() {
		return t, fmt.Errorf("%s: %w", path, ErrNoFile)
	}
	file, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer func() { _ = file.Close() }()
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { w.CloseWithError(writeForm(form, file, filepath.Base(path), fields)) }()
	defer func() { _ = r.Close() }()
	return t, c.do(ctx, http.MethodPost, "/api/knowledge/documents/upload-async", form.FormDataContentType(), r, &t)
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
