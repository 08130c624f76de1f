package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

// task is contract §4's task.
type task struct {
	TaskID            string     `json:"taskId"`
	DocumentID        string     `json:"documentId"`
	Status            string     `json:"status"`
	Stage             string     `json:"stage"`
	Progress          int        `json:"progress"`
	ProcessedSegments int        `json:"processedSegments"`
	TotalSegments     int        `json:"totalSegments"`
	ErrorMessage      string     `json:"errorMessage"`
	AttemptCount      int        `json:"attemptCount"`
	MaxAttempts       int        `json:"maxAttempts"`
	CrashCount        int        `json:"crashCount"`
	NextRetryAt       *time.Time `json:"nextRetryAt"`
	LastError         string     `json:"lastError"`
	CreatedAt         time.Time  `json:"createdAt"`
	UpdatedAt         time.Time  `json:"updatedAt"`
	Duplicate         bool       `json:"duplicate,omitempty"`
}

// ended reports whether nothing more happens by itself.
func (t task) ended() bool {
	return t.Status == "SUCCEEDED" || t.Status == "DEAD" || t.Status == "CANCELLED"
}

// apiError is the gateway's problem+json.
type apiError struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Remedy    string `json:"remedy"`
	RequestID string `json:"requestId"`
}

// Error says what the gateway said.
func (e *apiError) Error() string {
	text := fmt.Sprintf("%s: %s", e.Code, e.Message)
	if e.Remedy != "" {
		text += " " + e.Remedy
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// exitCode is contract §9's for the gateway's answer.
func (e *apiError) exitCode() int {
	switch {
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return ExitAuth
	case e.Status == http.StatusNotFound:
		return ExitNotFound
	case e.Status == http.StatusTooManyRequests:
		return ExitRateLimited
	case e.Status >= 500:
		return ExitServer
	}
	return ExitBadInput
}

// client speaks to one gateway.
type client struct {
	base, key string
	http      *http.Client
}

// client makes the command's client.
func (c *common) client() *client {
	return &client{base: c.server, key: c.std.Getenv("MILLWEIR_API_KEY"), http: &http.Client{}}
}

// do sends a request and decodes a 2xx answer into out (nil: ignored). 204 leaves out as it is.
func (c *client) do(ctx context.Context, method, path string, contentType string, body io.Reader, out any) error {
	res, err := c.send(ctx, method, path, contentType, body, nil)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if out == nil || res.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("read answer of %s %s: %w", method, path, err)
	}
	return nil
}

// send returns a 2xx response, whose body the caller closes, or an error.
func (c *client) send(ctx context.Context, method, path, contentType string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, &usageError{err.Error()}
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	if res.StatusCode < 300 {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, problem(res)
}

// problem reads an error answer; one that is not ours keeps its status.
func problem(res *http.Response) error {
	e := &apiError{}
	b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if json.Unmarshal(b, e) != nil || e.Code == "" {
		e.Code, e.Message = "HTTP_"+fmt.Sprint(res.StatusCode), short(string(bytes.TrimSpace(b)), 200)
	}
	e.Status = res.StatusCode
	return e
}

// getTask reads one task.
func (c *client) getTask(ctx context.Context, id string) (t task, err error) {
	return t, c.do(ctx, http.MethodGet, "/api/knowledge/tasks/"+url.PathEscape(id), "", nil, &t)
}

// watch follows a task by its events until it ends; a broken stream is taken up again where it was.
func (c *client) watch(ctx context.Context, id string, seen func(task)) (task, error) {
	var last task
	lastID := ""
	for {
		ended, err := c.stream(ctx, id, &lastID, &last, seen)
		var api *apiError
		switch {
		case ended:
			return last, nil
		case ctx.Err() != nil:
			return last, ctx.Err()
		case errors.As(err, &api) && api.Status < 500 && api.Status != http.StatusTooManyRequests:
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// stream reads one event stream to its end.
func (c *client) stream(ctx context.Context, id string, lastID *string, last *task, seen func(task)) (ended bool, err error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if *lastID != "" {
		header.Set("Last-Event-ID", *lastID)
	}
	res, err := c.send(ctx, http.MethodGet, "/api/knowledge/tasks/"+url.PathEscape(id)+"/events", "", nil, header)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNoContent {
		if *last, err = c.getTask(ctx, id); err != nil {
			return false, err
		}
		return true, nil
	}
	scan := bufio.NewScanner(res.Body)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		field, value, _ := strings.Cut(scan.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			*lastID = value
		case "data":
			var t task
			if err := json.Unmarshal([]byte(value), &t); err != nil {
				return false, fmt.Errorf("read event: %w", err)
			}
			*last = t
			seen(t)
			if t.ended() {
				return true, nil
			}
		}
	}
	return false, scan.Err()
}
