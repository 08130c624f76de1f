package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// requestLimit is the longest time of one request.
const requestLimit = 30 * time.Second

// transport is shared: a thousand clients on one machine need its connections back.
var transport = &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: 10 * time.Second}

// Client speaks to one gateway as any user would.
type Client struct {
	base string
	http *http.Client
}

// NewClient is a client of the API at base, http://host:port.
func NewClient(base string) *Client {
	return &Client{base: base, http: &http.Client{Transport: transport, Timeout: requestLimit}}
}

// Doc is something to upload.
type Doc struct {
	Name string // file name
	Base string // knowledge base; empty: the default one
	Key  string // Idempotency-Key; empty: none
	Body []byte
	Mark string // a word that stands in this document alone
}

// FileDoc reads a document from a file.
func FileDoc(path string) (Doc, error) {
	b, err := os.ReadFile(path)
	return Doc{Name: filepath.Base(path), Body: b}, err
}

// Task is what the API says of a task.
type Task struct {
	TaskID       string     `json:"taskId"`
	DocumentID   string     `json:"documentId"`
	Status       string     `json:"status"`
	Stage        string     `json:"stage"`
	AttemptCount int        `json:"attemptCount"`
	CrashCount   int        `json:"crashCount"`
	NextRetryAt  *time.Time `json:"nextRetryAt"`
	ErrorCode    string     `json:"errorCode"`
	LastError    string     `json:"lastError"`
}

// Hit is one answer of a search.
type Hit struct {
	DocumentID string  `json:"documentId"`
	FileName   string  `json:"fileName"`
	Text       string  `json:"text"`
	Score      float64 `json:"score"`
}

// StatusError is an answer that was not the one hoped for.
type StatusError struct {
	Status     int
	Code       string        `json:"code"`
	Message    string        `json:"message"`
	RetryAfter time.Duration // 0: the header was missing
}

// Error shows status, code and message.
func (e *StatusError) Error() string {
	return fmt.Sprintf("HTTP %d %s: %s", e.Status, e.Code, e.Message)
}

// Upload sends a document by upload-async.
// Errors: *StatusError when the gateway answered; anything else means that the outcome is unknown.
func (c *Client) Upload(ctx context.Context, d Doc) (Task, error) {
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
	header := http.Header{"Content-Type": {form.FormDataContentType()}}
	if d.Key != "" {
		header.Set("Idempotency-Key", d.Key)
	}
	var t Task
	err = c.call(ctx, http.MethodPost, "/api/knowledge/documents/upload-async", header, &body, &t)
	if err == nil && t.TaskID == "" {
		err = fmt.Errorf("upload of %s: answered without a task", d.Name)
	}
	return t, err
}

// Task reads a task.
func (c *Client) Task(ctx context.Context, id string) (t Task, err error) {
	err = c.call(ctx, http.MethodGet, "/api/knowledge/tasks/"+id, nil, nil, &t)
	return t, err
}

// Explain is what the API says in words about a task.
func (c *Client) Explain(ctx context.Context, id string) (string, error) {
	var e struct {
		Text string `json:"text"`
	}
	err := c.call(ctx, http.MethodGet, "/api/knowledge/tasks/"+id+"/explain", nil, nil, &e)
	return e.Text, err
}

// Search asks for the k best segments of a base; "" is the default base.
func (c *Client) Search(ctx context.Context, base, query string, k int) ([]Hit, error) {
	if base == "" {
		base = "default"
	}
	body, err := json.Marshal(map[string]any{"query": query, "knowledgeBase": base, "topK": k})
	if err != nil {
		return nil, err
	}
	var out struct {
		Hits []Hit `json:"hits"`
	}
	header := http.Header{"Content-Type": {"application/json"}}
	err = c.call(ctx, http.MethodPost, "/api/knowledge/search", header, bytes.NewReader(body), &out)
	return out.Hits, err
}

// Get answers status and body of any address.
func (c *Client) Get(ctx context.Context, path string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, b, err
}

// call sends a request and decodes a 2xx answer.
func (c *Client) call(ctx context.Context, method, path string, header http.Header, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if res.StatusCode/100 != 2 {
		e := &StatusError{Message: string(b)}
		_ = json.Unmarshal(b, e) // not JSON: the text is shown as it came
		e.Status = res.StatusCode
		seconds, _ := strconv.ParseFloat(res.Header.Get("Retry-After"), 64)
		e.RetryAfter = time.Duration(seconds * float64(time.Second))
		return e
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// Host is host:port of the gateway.
func (c *Client) Host() string {
	u, err := url.Parse(c.base)
	if err != nil {
		return c.base
	}
	return u.Host
}
