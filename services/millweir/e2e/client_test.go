package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
)

// client uses the API as one user.
type client struct {
	t    *testing.T
	url  string
	key  string // API key; empty: none
	http *http.Client
}

func newClient(t *testing.T, url string) *client {
	transport := &http.Transport{ExpectContinueTimeout: waitLimit}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, url: url, http: &http.Client{Transport: transport, Timeout: 2 * waitLimit}}
}

// as is the same client with another API key.
func (c *client) as(key string) *client {
	other := *c
	other.key = key
	return &other
}

// in is the same client for a subtest.
func (c *client) in(t *testing.T) *client {
	other := *c
	other.t = t
	return &other
}

// answer is a whole HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is contract §4's error.
type problem struct {
	Status     int    `json:"status"`
	Code       string `json:"code"`
	Message    string `json:"message"`
	Remedy     string `json:"remedy"`
	RequestID  string `json:"requestId"`
	Parameter  string `json:"parameter"`
	TaskStatus string `json:"taskStatus"`
}

// task is a task as the API shows it, and what an upload adds.
type task struct {
	TaskID            string `json:"taskId"`
	DocumentID        string `json:"documentId"`
	KnowledgeBaseID   string `json:"knowledgeBaseId"`
	Status            string `json:"status"`
	Stage             string `json:"stage"`
	Progress          int    `json:"progress"`
	ProcessedSegments int    `json:"processedSegments"`
	TotalSegments     int    `json:"totalSegments"`
	AttemptCount      int    `json:"attemptCount"`
	ErrorCode         string `json:"errorCode"`
	ErrorMessage      string `json:"errorMessage"`
	LastError         string `json:"lastError"`
	NextRetryAt       string `json:"nextRetryAt"`
	FileName          string `json:"fileName"`
	Duplicate         bool   `json:"duplicate"`
	Replayed          bool   `json:"replayed"`
}

// hit is one answer of a search.
type hit struct {
	DocumentID string `json:"documentId"`
	ParentID   string `json:"parentId"`
	Title      string `json:"title"`
	Version    int    `json:"version"`
	Page       int    `json:"page"`
	Text       string `json:"text"`
}

// page is any list.
type page[T any] struct {
	Items      []T    `json:"items"`
	NextCursor string `json:"nextCursor"`
	HasMore    bool   `json:"hasMore"`
}

// do sends a request; header holds names and values in turn.
func (c *client) do(method, path string, body io.Reader, header ...string) answer {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, body)
	require.NoError(c.t, err)
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.http.Do(req)
	require.NoError(c.t, err, "%s %s", method, path)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	return answer{res.StatusCode, res.Header, b}
}

func (c *client) get(path string, header ...string) answer {
	c.t.Helper()
	return c.do(http.MethodGet, path, nil, header...)
}

// json sends a JSON body.
func (c *client) json(method, path, body string) answer {
	c.t.Helper()
	return c.do(method, path, strings.NewReader(body), "Content-Type", "application/json")
}

// into checks the status and decodes the body.
func (a answer) into(t *testing.T, status int, v any) {
	t.Helper()
	require.Equal(t, status, a.status, "%s", a.body)
	if v != nil {
		require.NoError(t, json.Unmarshal(a.body, v), "%s", a.body)
	}
}

// refused checks that the answer is a whole problem with this status and code.
func (a answer) refused(t *testing.T, status int, code string) problem {
	t.Helper()
	var p problem
	a.into(t, status, &p)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.Equal(t, code, p.Code, "%s", a.body)
	require.Equal(t, status, p.Status)
	require.NotEmpty(t, p.Message)
	require.NotEmpty(t, p.Remedy)
	require.NotEmpty(t, p.RequestID)
	require.Equal(t, a.header.Get("X-Request-Id"), p.RequestID)
	return p
}

// form is a multipart body: fields in turn, then one file.
func form(t *testing.T, name string, content []byte, fields ...string) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = &bytes.Buffer{}
	w := multipart.NewWriter(body)
	for i := 0; i < len(fields); i += 2 {
		require.NoError(t, w.WriteField(fields[i], fields[i+1]))
	}
	part, err := w.CreateFormFile("file", name)
	require.NoError(t, err)
	_, err = part.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return body, w.FormDataContentType()
}

const (
	documents = "/api/knowledge/documents"
	tasks     = "/api/knowledge/tasks"
	bases     = "/api/knowledge/bases"
)

// send uploads by upload-async.
func (c *client) send(name string, content []byte, fields ...string) answer {
	c.t.Helper()
	return c.sendWith(nil, name, content, fields...)
}

// sendWith is send with headers.
func (c *client) sendWith(header []string, name string, content []byte, fields ...string) answer {
	c.t.Helper()
	body, kind := form(c.t, name, content, fields...)
	return c.do(http.MethodPost, documents+"/upload-async", body, append([]string{"Content-Type", kind}, header...)...)
}

// accepted is the task of an upload that has to be taken.
func (c *client) accepted(name string, content []byte, fields ...string) task {
	c.t.Helper()
	var v task
	a := c.send(name, content, fields...)
	a.into(c.t, http.StatusAccepted, &v)
	require.Equal(c.t, tasks+"/"+v.TaskID, a.header.Get("Location"))
	return v
}

// ingested uploads and waits for success; the file comes back as it was sent.
func (c *client) ingested(name string, content []byte, fields ...string) task {
	c.t.Helper()
	v := c.ended(c.accepted(name, content, fields...).TaskID)
	require.Equal(c.t, "SUCCEEDED", v.Status, "%+v", v)
	file := c.get("/api/knowledge/documents/" + v.DocumentID + "/file")
	require.Equal(c.t, http.StatusOK, file.status, "%s", file.body)
	require.True(c.t, bytes.Equal(content, file.body), "%s: %d bytes were sent, other %d came back", name, len(content), len(file.body))
	return v
}

// newBase makes a knowledge base and returns its id.
func (c *client) newBase(name string) string {
	c.t.Helper()
	body, err := json.Marshal(map[string]string{"name": name})
	require.NoError(c.t, err)
	var v struct {
		ID string `json:"knowledgeBaseId"`
	}
	c.json(http.MethodPost, bases, string(body)).into(c.t, http.StatusCreated, &v)
	require.NotEmpty(c.t, v.ID)
	return v.ID
}

// task reads a task.
func (c *client) task(id string) (v task) {
	c.t.Helper()
	c.get(tasks+"/"+id).into(c.t, http.StatusOK, &v)
	return v
}

// event is one server-sent event.
type event struct {
	id   string
	task task
}

// events follows a task until a test of each event says stop, or the server ends the stream.
func (c *client) events(id string, stop func(task) bool) (all []event) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+tasks+"/"+id+"/events", http.NoBody)
	require.NoError(c.t, err)
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := c.http.Do(req)
	require.NoError(c.t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(c.t, http.StatusOK, res.StatusCode)
	var e event
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "data":
			e.task = task{} // null would leave what was there
			require.NoError(c.t, json.Unmarshal([]byte(value), &e.task))
			all = append(all, e)
			if stop(e.task) {
				return all
			}
		}
	}
	require.NoError(c.t, lines.Err())
	return all
}

// ended waits for a task's end.
func (c *client) ended(id string) task {
	c.t.Helper()
	never := func(task) bool { return false }
	all := c.events(id, never)
	require.NotEmpty(c.t, all)
	return all[len(all)-1].task
}

// reaches waits until a task is in a status.
func (c *client) reaches(id, status string) task {
	c.t.Helper()
	all := c.events(id, func(v task) bool { return v.Status == status })
	require.NotEmpty(c.t, all)
	last := all[len(all)-1].task
	require.Equal(c.t, status, last.Status, "%+v", last)
	return last
}

// search returns the hits for a query.
func (c *client) search(query, base string, k int) []hit {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "knowledgeBase": base, "topK": k})
	require.NoError(c.t, err)
	var v struct {
		Hits []hit `json:"hits"`
	}
	c.json(http.MethodPost, "/api/knowledge/search", string(body)).into(c.t, http.StatusOK, &v)
	return v.Hits
}

// segments is a document's text out of all its segments.
func (c *client) segments(documentID string) string {
	c.t.Helper()
	var all strings.Builder
	for cursor := ""; ; {
		var p page[struct {
			Text string `json:"text"`
		}]
		c.get(documents+"/"+documentID+"/segments?limit=100&cursor="+cursor).into(c.t, http.StatusOK, &p)
		for _, s := range p.Items {
			all.WriteString(s.Text + "\n")
		}
		if !p.HasMore {
			return all.String()
		}
		cursor = p.NextCursor
	}
}

// ready waits until nothing is missing: who does not answer a probe in two seconds is missing for that time.
func (c *client) ready() {
	c.t.Helper()
	eventually(c.t, "all is ready", func() bool { return c.get("/readyz").status == http.StatusOK })
}

// eventually waits for a condition by asking for it.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, waitLimit, 50*time.Millisecond, what)
}

func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}
