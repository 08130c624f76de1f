package gateway

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/wire"
)

// listAudit shows the audit log to operators, the newest first.
func (g *operators) listAudit(c *gin.Context) error {
	if g.trail.log == nil {
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
	rows, err := g.trail.log.List(c.Request.Context(), q)
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
