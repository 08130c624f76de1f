package gateway

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/wire"
)

// sourceOf is who asks, for the audit log.
func sourceOf(c *gin.Context) audit.Source {
	r := requestOf(c)
	return audit.Source{Actor: r.principal.UserID, Role: r.principal.Role, KeyID: r.principal.KeyID, IP: c.ClientIP(), RequestID: r.id}
}

// tried counts an attempt that changed nothing.
func (g *Gateway) tried(e audit.Event) {
	if g.deps.Audit != nil {
		g.deps.Audit.Tried(e)
	}
}

// acting is the caller of a step; that of an operator is noted in the step's own transaction.
func (g *Gateway) acting(c *gin.Context, action audit.Action, target, detail string) ingest.Caller {
	who := caller(c)
	if g.deps.Audit != nil && who.Scope.All() {
		who.Note = g.deps.Audit.Note(audit.Event{Action: action, Source: sourceOf(c), Target: target, Detail: detail})
	}
	return who
}

// listAudit shows the audit log to operators, the newest first.
func (g *Gateway) listAudit(c *gin.Context) error {
	if g.deps.Audit == nil {
		return problemf(codeNotFound, "this service keeps no audit log")
	}
	limit, after, err := pageParams(c, "audit")
	if err != nil {
		return err
	}
	actions, err := enumParam(c, "action", audit.Actions())
	if err != nil {
		return err
	}
	q := audit.Query{Limit: limit + 1}
	switch len(actions) {
	case 0:
	case 1:
		q.Action = actions[0]
	default:
		return problemf(codeInvalidParameter, "parameter action takes one action").about("action")
	}
	if q.Actor, err = userParam(c, "actor"); err != nil {
		return err
	}
	if after != nil {
		q.Before = after.at
	}
	rows, err := g.deps.Audit.List(c.Request.Context(), q)
	if err != nil {
		return err
	}
	next := func(e audit.Event) cursor { return cursor{list: "audit", at: e.ID} }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewEvent, next))
}

func viewEvent(e audit.Event) wire.AuditEvent {
	s := e.Source
	return wire.AuditEvent{
		ID: formatID(e.ID), At: wire.At(e.At), Action: string(e.Action), Actor: wire.NullText(s.Actor), Role: wire.NullText(s.Role),
		KeyID: wire.NullText(s.KeyID), IP: wire.NullText(s.IP), RequestID: wire.NullText(s.RequestID), Target: wire.NullText(e.Target),
		Detail: wire.NullText(e.Detail), Times: e.Times,
	}
}
