package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/millweir/millweir/pkg/wire"
)

// visitKey carries the Visit in the context of a request.
type visitKey struct{}

func withVisit(ctx context.Context, v Visit) context.Context {
	return context.WithValue(ctx, visitKey{}, v)
}

func visitOf(ctx context.Context) Visit {
	v, _ := ctx.Value(visitKey{}).(Visit)
	return v
}

// answer is a response of the API that is kept. Deadlines go to the connection below it.
type answer struct {
	below  http.ResponseWriter
	header http.Header
	status int
	body   bytes.Buffer
	pass   bool // what is not a problem goes to the browser as it comes, and is not kept
}

// passes reports whether the response goes to the browser.
func (a *answer) passes() bool {
	return a.pass && a.status < http.StatusBadRequest
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status != 0 {
		return
	}
	if a.status = status; a.passes() {
		maps.Copy(a.below.Header(), a.header)
		a.below.WriteHeader(status)
	}
}

func (a *answer) Write(text []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.passes() {
		return a.below.Write(text)
	}
	return a.body.Write(text)
}

// Flush has nothing to do: the body is kept until it is whole.
func (a *answer) Flush() {}

// Unwrap gives http.ResponseController the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.below }

// request makes a request of the API out of the one for this page: the same caller, nothing of the browser's credentials. body has
// size bytes, -1: not known; nil: there is none.
func (p *page) request(method, path string, query url.Values, contentType string, body io.Reader, size int64) (*http.Request, error) {
	target := path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, fmt.Errorf("ask the API for %s: %w", path, err)
	}
	r := p.r.Clone(p.r.Context())
	r.Method, r.URL, r.RequestURI, r.Header = method, u, target, http.Header{}
	r.Form, r.PostForm, r.MultipartForm, r.TransferEncoding = nil, nil, nil, nil
	r.Body, r.ContentLength = http.NoBody, 0
	if body != nil {
		r.Body, r.ContentLength = io.NopCloser(body), size
	}
	for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "User-Agent"} { // whose request it is
		if v := p.r.Header.Values(name); len(v) > 0 {
			r.Header[name] = v
		}
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r, nil
}

// ask sends a request to the API and returns a 2xx answer, or a *Refusal.
func (p *page) ask(r *http.Request) (*answer, error) {
	return p.into(&answer{below: p.w, header: http.Header{}}, r)
}

// into is ask with a response of the caller's.
func (p *page) into(a *answer, r *http.Request) (*answer, error) {
	p.visit.API(a, r, p.secret)
	if a.passes() || a.status >= http.StatusOK && a.status < http.StatusMultipleChoices {
		return a, nil
	}
	if a.header.Get("Connection") == "close" { // of a body that nobody wants
		p.w.Header().Set("Connection", "close")
	}
	refused := &Refusal{}
	if err := json.Unmarshal(a.body.Bytes(), &refused.Problem); err != nil || refused.Code == "" {
		return a, fmt.Errorf("%s %s: status %d without a problem", r.Method, r.URL.Path, a.status)
	}
	refused.Status = a.status
	return a, refused
}

// call sends in as JSON (nil: no body) and reads the answer into out (nil: not read).
func (p *page) call(method, path string, query url.Values, in, out any) error {
	var body io.Reader
	kind, size := "", int64(0)
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode for %s: %w", path, err)
		}
		body, kind, size = bytes.NewReader(text), "application/json", int64(len(text))
	}
	r, err := p.request(method, path, query, kind, body, size)
	if err != nil {
		return err
	}
	a, err := p.ask(r)
	if err != nil || out == nil || a.body.Len() == 0 {
		return err
	}
	if err := json.Unmarshal(a.body.Bytes(), out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil
}

// get reads path into out.
func (p *page) get(path string, query url.Values, out any) error {
	return p.call(http.MethodGet, path, query, nil, out)
}

// raw is the JSON at path, indented. Numbers stay as the API writes them.
func (p *page) raw(path string) (string, error) {
	var v json.RawMessage
	if err := p.get(path, nil, &v); err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, v, "", "  "); err != nil {
		return "", err
	}
	return out.String(), nil
}

// rows reads one page of a list: the address's parameters that the API takes go along.
func rows[T any](p *page, path string, take ...string) (wire.List[T], error) {
	var list wire.List[T]
	err := p.get(path, p.query(append(take, "cursor", "limit")...), &list)
	return list, err
}

// query is the address's parameters of these names that are not empty.
func (p *page) query(names ...string) url.Values {
	q := url.Values{}
	for _, name := range names {
		if v := strings.TrimSpace(strings.Join(p.r.URL.Query()[name], ",")); v != "" {
			q.Set(name, v)
		}
	}
	return q
}

// under joins a path of escaped parts.
func under(root string, parts ...string) string {
	for _, part := range parts {
		root += "/" + url.PathEscape(part)
	}
	return root
}
