package web

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
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
	Streaming bool // an event stream: its length says nothing about speed
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
