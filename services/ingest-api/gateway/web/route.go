// Package web is what the parts of the gateway share: routes, problems, parameters, cursors, answers and who asks.
//
// problem.go and codes.go turn errors into problem+json: error → code → status → remedy.
package web

import (
	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
)

// Access says who may use a route.
type Access int

const (
	AccessPublic  Access = iota // anyone
	AccessRead                  // any valid key or token with the scope read; rows of its user only
	AccessWrite                 // the same with the scope write
	AccessInspect               // the operator role and the scope read
	AccessOperate               // the operator role and the scope write
	AccessMetrics               // as accessInspect, or anyone with METRICS_PUBLIC
)

// Operator reports whether a route is for operators only.
func (a Access) Operator() bool {
	return a == AccessInspect || a == AccessOperate || a == AccessMetrics
}

// Scope is what a key or token has to be good for.
func (a Access) Scope() auth.Scope {
	if a == AccessWrite || a == AccessOperate {
		return auth.ScopeWrite
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
	Handle HandlerFunc
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
