// Package web is what the parts of the gateway share: routes, problems, parameters, cursors, answers and who asks.
//
// problem.go and codes.go turn errors into problem+json: error → code → status → remedy.
package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	RequestKey     = "gateway.request"
	cliAgentPrefix = "millweir-cli/" // the command line's User-Agent
)

// Request is what the gateway knows of one request.
type Request struct {
	ID        string
	Parent    string // W3C traceparent of the span that the gateway opened
	Principal auth.Principal
	Streaming bool   // an event stream: its length says nothing about speed
	TLS       bool   // the caller's connection is encrypted
	Prefix    string // what a proxy has taken away before the path, as the caller knows it; empty: nothing
}

// RequestOf returns the request's record; begin has made it.
func RequestOf(c *gin.Context) *Request {
	v, _ := c.Get(RequestKey)
	if r, ok := v.(*Request); ok {
		return r
	}
	return &Request{}
}

// Caller is who asks, for the application.
func Caller(c *gin.Context) ingest.Caller {
	r := RequestOf(c)
	channel := "http"
	if strings.HasPrefix(c.Request.UserAgent(), cliAgentPrefix) {
		channel = "cli"
	}
	return ingest.Caller{Scope: r.Principal.Scope(), RequestID: r.ID, TraceParent: r.Parent, Channel: channel}
}

// CleanMethod keeps odd methods out of logs and labels.
func CleanMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "OTHER"
}

// Source is who asks, for the audit log.
func Source(c *gin.Context) audit.Source {
	r := RequestOf(c)
	return audit.Source{Actor: r.Principal.UserID, Role: r.Principal.Role, KeyID: r.Principal.KeyID, IP: c.ClientIP(), RequestID: r.ID}
}

// Stopped reports whether a channel was closed.
func Stopped(draining <-chan struct{}) bool {
	select {
	case <-draining:
		return true
	default:
		return false
	}
}

// Access says who may use a route.
type Access int

const (
	AccessPublic  Access = iota // anyone
	AccessRead                  // any valid key or token with the scope read; rows of its user only
	AccessWrite                 // the same with the scope write
	AccessInspect               // the operator role and the scope read
	AccessOperate               // the operator role and the scope write
	AccessMetrics               // as AccessWatch, or anyone with METRICS_PUBLIC
	AccessSearch                // any valid key or token with the scope search, or read
	AccessUpload                // the same with the scope upload, or write
	AccessStatus                // the same with the scope status, or read: what it sends goes through Veil
	AccessWatch                 // the operator role and the scope status, or read
)

// Operator reports whether a route is for operators only.
func (a Access) Operator() bool {
	return a == AccessInspect || a == AccessOperate || a == AccessMetrics || a == AccessWatch
}

// Scope is what a key or token has to be good for.
func (a Access) Scope() auth.Scope {
	switch a {
	case AccessWrite, AccessOperate:
		return auth.ScopeWrite
	case AccessSearch:
		return auth.ScopeSearch
	case AccessUpload:
		return auth.ScopeUpload
	case AccessStatus, AccessWatch, AccessMetrics:
		return auth.ScopeStatus
	case AccessPublic, AccessRead, AccessInspect:
	}
	return auth.ScopeRead
}

// HandlerFunc returns a request or says what went wrong; it has then written nothing.
type HandlerFunc func(c *gin.Context) error

// Route is one row of the table.
type Route struct {
	Method string
	Path   string // gin's form
	Access Access
	Query  []string // allowed query parameters; any other is 400
	Base   BaseRule // which knowledge base a request is about
	Handle HandlerFunc
}

// In is the route with what says which knowledge base a request is about.
func (r Route) In(b BaseRule) Route {
	r.Base = b
	return r
}

// Without makes routes say why the service has not what they show.
func Without(routes []Route, why string) []Route {
	for i := range routes {
		routes[i].Handle = func(*gin.Context) error { return Errorf(CodeNotFound, "%s", why) }
	}
	return routes
}

// Of is a handler of what the path names: find reads the path.
func Of[T any](find func(*gin.Context) (T, error), handle func(c *gin.Context, named T) error) HandlerFunc {
	return func(c *gin.Context) error {
		named, err := find(c)
		if err != nil {
			return err
		}
		return handle(c, named)
	}
}

// On is a row of the table; query are the parameters that it takes.
func On(method, path string, access Access, query []string, handle HandlerFunc) Route {
	return Route{Method: method, Path: path, Access: access, Query: query, Handle: handle}
}

// AuditLog keeps and shows what operators did and what others tried; audit.Log is one.
type AuditLog interface {
	// Tried counts an attempt that changed nothing; it never waits.
	Tried(e audit.Event)
	// Note returns what writes an event in the transaction of the change that it is about.
	Note(e audit.Event) taskstate.TxFunc
	// Write writes an event at once, before a step outside the database.
	Write(ctx context.Context, e audit.Event) error
	// List reads events, the newest first.
	List(ctx context.Context, q audit.Query) ([]audit.Event, error)
}

// Trail notes what callers did and tried; without a log it notes nothing.
type Trail struct{ Log AuditLog }

// Tried counts an attempt that changed nothing.
func (t Trail) Tried(e audit.Event) {
	if t.Log != nil {
		t.Log.Tried(e)
	}
}

// Acting is the caller of a step; that of an operator is noted in the step's own transaction.
func (t Trail) Acting(c *gin.Context, action audit.Action, target, detail string) ingest.Caller {
	who := Caller(c)
	if t.Log != nil && who.Scope.All() {
		who.Note = t.Log.Note(audit.Event{Action: action, Source: Source(c), Target: target, Detail: detail})
	}
	return who
}

// Noted writes a step outside the database into the audit log, before it is taken: what it was about to change is then known
// whatever became of it.
func (t Trail) Noted(c *gin.Context, action audit.Action, target, detail string) error {
	if t.Log == nil {
		return nil
	}
	return t.Log.Write(c.Request.Context(), audit.Event{Action: action, Source: Source(c), Target: target, Detail: detail})
}
