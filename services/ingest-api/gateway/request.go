package gateway

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
)

const (
	requestKey     = "gateway.request"
	cliAgentPrefix = "millweir/" // the command line's User-Agent
)

// request is what the gateway knows of one request.
type request struct {
	id        string
	parent    string // W3C traceparent of the span that the gateway opened
	principal auth.Principal
	streaming bool // an event stream: its length says nothing about speed
}

// requestOf returns the request's record; begin has made it.
func requestOf(c *gin.Context) *request {
	if v, ok := c.Get(requestKey); ok {
		if r, ok := v.(*request); ok {
			return r
		}
	}
	return &request{}
}

// caller is who asks, for the application.
func caller(c *gin.Context) ingest.Caller {
	r := requestOf(c)
	channel := "http"
	if strings.HasPrefix(c.Request.UserAgent(), cliAgentPrefix) {
		channel = "cli"
	}
	return ingest.Caller{Scope: r.principal.Scope(), RequestID: r.id, TraceParent: r.parent, Channel: channel}
}

// cleanMethod keeps odd methods out of logs and labels.
func cleanMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "OTHER"
}

// sourceOf is who asks, for the audit log.
func sourceOf(c *gin.Context) audit.Source {
	r := requestOf(c)
	return audit.Source{Actor: r.principal.UserID, Role: r.principal.Role, KeyID: r.principal.KeyID, IP: c.ClientIP(), RequestID: r.id}
}

// stopped reports whether a channel was closed.
func stopped(draining <-chan struct{}) bool {
	select {
	case <-draining:
		return true
	default:
		return false
	}
}
