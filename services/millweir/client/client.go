// Package client speaks to one gateway over HTTP, in the types of pkg/wire.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wire"
)

const (
	// maxAnswer bounds what is read of an answer, maxProblem what is read of a refusal.
	maxAnswer, maxProblem = 64 << 20, 1 << 20
	// maxWords bounds what an error repeats of an answer that is not the gateway's.
	maxWords = 200
	// largestPage is the gateway's.
	largestPage = 100
	// agent stands before the version in the User-Agent; the gateway knows the command line's tasks by it.
	agent = "millweir-cli/"
)

// Client speaks to the gateway at Base. It is safe for concurrent use.
type Client struct {
	Base string // without a slash at the end
	Key  string // API key or token; empty: none
	http http.Client
}

// New makes a client. It follows no redirect: a POST would become a GET on the way.
func New(base, key string) *Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{Base: base, Key: key, http: http.Client{CheckRedirect: stay}}
}

// Error is the gateway's refusal, or what a stranger between returned, such as a proxy, with the code HTTP_<status>.
type Error struct {
	wire.Problem
	Stranger bool `json:"-"` // the gateway did not write it: it says nothing about a task or a document
}

// Error says what the gateway said.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s", e.Code, e.Message)
	if e.Remedy != "" {
		if !strings.HasSuffix(text, ".") {
			text += "."
		}
		text += " " + e.Remedy
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Get reads path into out.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, "", nil, nil, out)
}

// Answer is a response as it came.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Ask reads path whatever the status is. Errors: ErrAddress, ErrNoAnswer, and what keeps the body from being read.
func (c *Client) Ask(ctx context.Context, path string) (*Answer, error) {
	res, err := c.request(ctx, http.MethodGet, path, "", nil, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return &Answer{res.StatusCode, res.Header, body}, err
}

// Post sends body as JSON (nil: none) and reads the answer into out.
func (c *Client) Post(ctx context.Context, path string, body, out any) error {
	if body == nil {
		return c.do(ctx, http.MethodPost, path, "", nil, nil, out)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	return c.do(ctx, http.MethodPost, path, "application/json", bytes.NewReader(text), nil, out)
}

// Open reads the file at path as it comes; the body is to be closed.
func (c *Client) Open(ctx context.Context, path string) (io.ReadCloser, http.Header, error) {
	res, err := c.send(ctx, http.MethodGet, path, "", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if res.Header.Get("Content-Disposition") == "" { // the gateway names every file
		defer func() { _ = res.Body.Close() }()
		return nil, nil, c.refusal(res)
	}
	return res.Body, res.Header, nil
}

// Delete removes what path names.
func (c *Client) Delete(ctx context.Context, path string) error {
	return c.do(ctx, http.MethodDelete, path, "", nil, nil, nil)
}

// List pages through a list until it has limit items or the list ends.
func List[T any](ctx context.Context, c *Client, path string, q url.Values, limit int) ([]T, error) {
	var all []T
	for len(all) < limit {
		q.Set("limit", strconv.Itoa(min(limit-len(all), largestPage)))
		var page wire.List[T]
		if err := c.Get(ctx, path+"?"+q.Encode(), &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.NextCursor == "" {
			break
		}
		q.Set("cursor", string(page.NextCursor))
	}
	return all, nil
}

// do sends a request and decodes a 2xx answer into out (nil: ignored). 204 leaves out as it is.
func (c *Client) do(ctx context.Context, method, path, contentType string, body io.Reader, header http.Header, out any) error {
	res, err := c.send(ctx, method, path, contentType, body, header)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNoContent {
		return nil
	}
	if !isKind(res, "application/json") {
		return c.refusal(res)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("read answer of %s %s: %w", method, path, err)
	}
	return nil
}

// send returns a 2xx response, whose body the caller closes, or an error.
func (c *Client) send(ctx context.Context, method, path, contentType string, body io.Reader, header http.Header) (*http.Response, error) {
	res, err := c.request(ctx, method, path, contentType, body, header)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < http.StatusMultipleChoices {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, c.refusal(res)
}

// request returns any response, whose body the caller closes.
func (c *Client) request(ctx context.Context, method, path, contentType string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("User-Agent", agent+process.Version())
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	return res, nil
}

// isKind reports whether a response says that it is of a media type.
func isKind(res *http.Response, want string) bool {
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return err == nil && kind == want
}

// refusal reads an error answer, or one that is not the gateway's.
func (c *Client) refusal(res *http.Response) error {
	e := &Error{}
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem)) // what could be read is enough
	// The gateway refuses by 4xx and 5xx alone.
	if res.StatusCode < http.StatusBadRequest || json.Unmarshal(text, e) != nil || e.Code == "" {
		e = c.stranger(res, text)
	}
	e.Status = res.StatusCode
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && e.RetryAfter == 0 {
		e.RetryAfter = seconds
	}
	return e
}

var (
	htmlTitle = regexp.MustCompile(`(?is)<title[^>]*>(.*?)</title>`)
	htmlPage  = regexp.MustCompile(`(?i)<(!doctype )?html`)
)

// stranger is the error for an answer that is not the gateway's: where it leads to, or the first words of its title or text.
func (c *Client) stranger(res *http.Response, text []byte) *Error {
	said := ""
	if title := htmlTitle.FindSubmatch(text); title != nil {
		said = html.UnescapeString(string(title[1]))
	} else if !htmlPage.Match(text) {
		said = string(text)
	}
	words := []rune(strings.Join(strings.Fields(said), " "))
	said = cmp.Or(string(words[:min(len(words), maxWords)]), res.Status)
	remedy := "See whether " + c.Base + " is its address, and what stands before it."
	if to, err := res.Location(); err == nil {
		to.RawQuery = ""
		said = "it leads to " + to.String()
		asked, _, _ := strings.Cut(strings.TrimPrefix(res.Request.URL.String(), c.Base), "?")
		if base, same := strings.CutSuffix(to.String(), asked); same {
			remedy = "Set the server to " + base + " (--server, MILLWEIR_SERVER or a profile)."
		}
	} else if res.StatusCode == http.StatusRequestEntityTooLarge {
		remedy = "The limit is that of a proxy before the gateway: raise it there (nginx: client_max_body_size)."
	}
	return &Error{Stranger: true, Problem: wire.Problem{
		Code: "HTTP_" + strconv.Itoa(res.StatusCode), Message: said + " (not from a millweir gateway)", Remedy: remedy,
	}}
}
