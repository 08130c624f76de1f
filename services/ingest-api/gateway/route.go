package gateway

import (
	"github.com/gin-gonic/gin"
	"github.com/millweir/millweir/pkg/auth"
)

// access says who may use a route.
type access int

const (
	accessPublic  access = iota // anyone
	accessRead                  // any valid key or token with the scope read; rows of its user only
	accessWrite                 // the same with the scope write
	accessInspect               // the operator role and the scope read
	accessOperate               // the operator role and the scope write
	accessMetrics               // as accessInspect, or anyone with METRICS_PUBLIC
)

// operator reports whether a route is for operators only.
func (a access) operator() bool {
	return a == accessInspect || a == accessOperate || a == accessMetrics
}

// scope is what a key or token has to be good for.
func (a access) scope() auth.Scope {
	if a == accessWrite || a == accessOperate {
		return auth.ScopeWrite
	}
	return auth.ScopeRead
}

// handlerFunc returns a request or says what went wrong; it has then written nothing.
type handlerFunc func(c *gin.Context) error

// route is one row of the table.
type route struct {
	method string
	path   string // gin's form
	access access
	query  []string // allowed query parameters; any other is 400
	handle handlerFunc
}
