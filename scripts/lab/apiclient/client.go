// Package apiclient speaks to a gateway as any user would: documents, loads, searches, event streams.
package apiclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// requestLimit is the longest time of one request.
const requestLimit = 30 * time.Second

// transport is shared: a thousand clients on one machine need its connections back.
var transport = &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: 10 * time.Second}

// Client speaks to one gateway as any user would. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
	user string // for the journal
	key  string // sent as Bearer; empty: none
	note func(Call)
}

// NewClient is a client of the API at base, http://host:port.
func NewClient(base string) *Client {
	return &Client{base: base, http: &http.Client{Transport: transport, Timeout: requestLimit}}
}

// As is the same client as a user with an API key; note, when not nil, hears of every request after its end, from any goroutine.
func (c *Client) As(user, key string, note func(Call)) *Client {
	return &Client{base: c.base, http: c.http, user: user, key: key, note: note}
}

// Within is the same client with another longest time of a request.
func (c *Client) Within(limit time.Duration) *Client {
	other := *c
	other.http = &http.Client{Transport: transport, Timeout: limit}
	return &other
}

// Doc is something to upload.
type Doc struct {
	Name string // file name
	Base string // knowledge base; empty: the default one
	Key  string // Idempotency-Key; empty: none
	Body []byte
	Mark string // a word that stands in this document alone
}

// Hash is the SHA-256 of the document's bytes, hex.
func (d Doc) Hash() string {
	sum := sha256.Sum256(d.Body)
	return hex.EncodeToString(sum[:])
}

// FileDoc reads a document from a file.
func FileDoc(path string) (Doc, error) {
	b, err := os.ReadFile(path)
	return Doc{Name: filepath.Base(path), Body: b}, err
}

// Task is what the API says of a task.
type Task struct {
	TaskID       string           `json:"taskId"`
	DocumentID   string           `json:"documentId"`
	Status       taskstate.Status `json:"status"`
	AttemptCount int              `json:"attemptCount"`
	CrashCount   int              `json:"crashCount"`
	NextRetryAt  *time.Time       `json:"nextRetryAt"`
	ErrorCode    string           `json:"errorCode"`
	LastError    string           `json:"lastError"`
	Duplicate    bool             `json:"duplicate"` // of an upload's answer
	Replayed     bool             `json:"replayed"`  // of an upload's answer
}

// Hit is one answer of a search.
type Hit struct {
	DocumentID string  `json:"documentId"`
	FileName   string  `json:"fileName"`
	Version    int64   `json:"version"`
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

// Get returns status and body of any address.
func (c *Client) Get(ctx context.Context, path string) (int, []byte, error) {
	res, b, err := c.send(ctx, request{method: http.MethodGet, path: path}) //nolint:bodyclose // send does
	if err != nil {
		return 0, nil, err
	}
	return res.StatusCode, b, nil
}

// Host is host:port of the gateway.
func (c *Client) Host() string {
	u, err := url.Parse(c.base)
	if err != nil {
		return c.base
	}
	return u.Host
}

// authorize sends the client's key, if it has one.
func (c *Client) authorize(req *http.Request) {
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
}
