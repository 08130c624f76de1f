// Package rest is the small HTTP client that the adapters of outside services share.
//
// It makes one JSON call at a time with a time-out and a cap on the reply, follows no redirect, and turns whatever
// goes wrong into an error whose text is fit for lastError: method and URL without user, password or query, then the
// real cause (`POST http://host/embeddings: dial tcp 127.0.0.1:65530: connect: connection refused`).
// What a status means is the caller's business; Retry holds the one rule for trying again.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	// connectTimeout bounds one TCP connect; a host that drops packets would otherwise hold the call for minutes.
	connectTimeout = 5 * time.Second
	// pingAfter is how long a connection of HTTP/2 may be silent before it must prove that it lives, and how long that may take.
	pingAfter = 15 * time.Second
	// maxErrorBody is read of a reply that is not 2xx, bytes; enough for a cause, too little to hurt.
	maxErrorBody = 64 << 10
	// maxCause is kept of a service's own error text, characters.
	maxCause = 400
	// idleConns per host; the callers of one process talk to one host each.
	idleConns = 16

	tracerName = "github.com/millweir/millweir/pkg/ingest/internal/rest"
)

// ErrBaseURL is returned by New for a base URL that is not absolute http or https.
var ErrBaseURL = errors.New("not an absolute http or https URL")

// ErrReplyTooLarge is the cause when a reply is larger than the call's cap.
var ErrReplyTooLarge = errors.New("reply is larger than allowed")

// TransportError is a call that brought no whole reply: refused, reset, cut, timed out, too large.
type TransportError struct {
	Op  string // method and URL without secrets
	Err error
}

// Error is the operation and the cause.
func (e *TransportError) Error() string { return e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *TransportError) Unwrap() error { return e.Err }

// StatusError is a reply that is not 2xx.
type StatusError struct {
	Op     string
	Status int
	Header http.Header
	Cause  string // the service's own words, one line, without our secrets; may be empty
}

// Error is the operation, the status and the service's words.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.Op, e.Status, http.StatusText(e.Status))
	if e.Status >= 300 && e.Status < 400 {
		text += " (redirects are not followed)"
	}
	if e.Cause != "" {
		text += ": " + e.Cause
	}
	return text
}

// Client calls one service. It is safe for concurrent use.
type Client struct {
	base    *url.URL
	header  http.Header
	secrets []string
	http    *http.Client
	tracer  trace.Tracer
}

// NewBearer is New for a service that takes a key as bearer token; key may be empty.
func NewBearer(base, key string) (*Client, error) {
	header := http.Header{"User-Agent": {"millweir"}}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	return New(base, header, key)
}

// New returns a client for base, an absolute http or https URL; a query in it is sent with every call.
// header is sent with every call too, e.g. Authorization; secrets are never shown in an error, whoever says them.
func New(base string, header http.Header, secrets ...string) (*Client, error) {
	u, err := ParseBase(base)
	if err != nil {
		return nil, err
	}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}
	return &Client{
		base: u, header: header, secrets: secrets, tracer: otel.Tracer(tracerName),
		http: &http.Client{
			Transport:     newTransport(),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// ParseBase parses a base URL; its error never shows the URL, which may hold a password.
func ParseBase(base string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, ErrBaseURL
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	u.Fragment = ""
	return u, nil
}

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
		// A time-out does not end a connection of HTTP/2, which all callers share: only a ping without an answer does.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter},
	}
}

// Call is one request.
type Call struct {
	Method   string
	Path     string    // below the base, beginning with "/"; empty: the base itself
	Template string    // Path without its ids, for traces; empty: Path has none
	Query    string    // after that of the base URL, encoded; empty: none
	Body     []byte    // JSON; nil: none
	Upload   io.Reader // a body of another kind, which Header names, of Size bytes; nil: none
	Size     int64
	Header   http.Header
	MaxReply int64 // bytes
	Timeout  time.Duration
}

// Op names a call for people: method and URL without user, password and query.
func (c *Client) Op(call Call) string {
	u := *c.base
	u.User, u.RawQuery = nil, ""
	return call.Method + " " + u.String() + call.Path
}

// Path is the path of the base URL, without a slash at its end.
func (c *Client) Path() string { return c.base.Path }

// Host is the name of the base URL's host, in small letters.
func (c *Client) Host() string { return strings.ToLower(c.base.Hostname()) }

// Port is the port of the base URL; empty when it names none.
func (c *Client) Port() string { return c.base.Port() }

// CloseIdle closes the connections that are not in use.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Do makes one call and returns the body of a 2xx reply.
// Errors: *TransportError, *StatusError; the error of ctx when ctx ended.
func (c *Client) Do(ctx context.Context, call Call) ([]byte, error) {
	template := cmp.Or(call.Template, call.Path)
	ctx, span := c.tracer.Start(ctx, strings.TrimSpace(call.Method+" "+template), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("http.request.method", call.Method), attribute.String("url.template", template),
			attribute.String("server.address", c.base.Hostname())))
	if port, err := strconv.Atoi(c.base.Port()); err == nil {
		span.SetAttributes(attribute.Int("server.port", port))
	}
	defer span.End()
	body, status, err := c.do(ctx, call)
	if status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if err != nil {
		span.SetStatus(codes.Error, telemetry.Redact(err.Error()))
	}
	return body, err
}

func (c *Client) do(ctx context.Context, call Call) (body []byte, status int, err error) {
	op := c.Op(call)
	inner, cancel := context.WithTimeout(ctx, call.Timeout)
	defer cancel()
	req, err := c.request(inner, call)
	if err != nil {
		return nil, 0, &TransportError{Op: op, Err: err}
	}
	reply, err := c.http.Do(req)
	if err != nil {
		return nil, 0, c.transportError(ctx, inner, call, err)
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode < 200 || reply.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, maxErrorBody))
		return nil, reply.StatusCode, &StatusError{Op: op, Status: reply.StatusCode, Header: reply.Header, Cause: c.Cause(text)}
	}
	body, err = io.ReadAll(io.LimitReader(reply.Body, call.MaxReply+1))
	if err != nil {
		return nil, reply.StatusCode, c.transportError(ctx, inner, call, fmt.Errorf("read reply: %w", err))
	}
	if int64(len(body)) > call.MaxReply {
		return nil, reply.StatusCode, &TransportError{Op: op, Err: fmt.Errorf("%w (%d bytes)", ErrReplyTooLarge, call.MaxReply)}
	}
	return body, reply.StatusCode, nil
}

func (c *Client) request(ctx context.Context, call Call) (*http.Request, error) {
	u := *c.base
	u.Path += call.Path
	u.RawQuery = strings.Trim(u.RawQuery+"&"+call.Query, "&")
	var reader io.Reader
	if call.Body != nil {
		reader = bytes.NewReader(call.Body)
	} else if call.Upload != nil {
		reader = call.Upload
	}
	req, err := http.NewRequestWithContext(ctx, call.Method, u.String(), reader)
	if err != nil {
		return nil, ErrBaseURL
	}
	if call.Upload != nil {
		req.ContentLength = call.Size
	}
	req.Header.Set("Accept", "application/json")
	for _, header := range []http.Header{c.header, call.Header} {
		for name, values := range header {
			req.Header[name] = values
		}
	}
	if call.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
	return req, nil
}

// transportError strips net/http's own prefix, which holds the whole URL, and tells our time-out from the caller's.
func (c *Client) transportError(outer, inner context.Context, call Call, err error) error {
	if outer.Err() != nil {
		return fmt.Errorf("%s: %w", c.Op(call), outer.Err())
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	if inner.Err() != nil {
		c.CloseIdle() // they are as likely dead, and each would cost a caller another time limit
		err = fmt.Errorf("no whole answer within %v: %w", call.Timeout, context.DeadlineExceeded)
	}
	return &TransportError{Op: c.Op(call), Err: err}
}

// Cause makes one line of a service's words and hides our secrets in it.
func (c *Client) Cause(body []byte) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(errorText(body), "�")), " ")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1 // Postgres refuses NUL, and a terminal must not obey a service
		}
		return r
	}, text)
	for _, secret := range c.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	if runes := []rune(text); len(runes) > maxCause {
		text = string(runes[:maxCause]) + "…"
	}
	return text
}
