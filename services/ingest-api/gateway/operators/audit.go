package operators

import (
	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// listAudit shows the audit log to operators, the newest first.
func (g *Handler) listAudit(c *gin.Context) error {
	p := web.ParamsOf(c)
	q := audit.Query{Action: web.Word(p, "action", audit.Actions()), Actor: p.User("actor")}
	if p.Err != nil {
		return p.Err
	}
	return web.List(c, "audit", func(after *web.Cursor, most int) ([]audit.Event, error) {
		q.Before, q.Limit = after.Number(0), most
		return g.Trail.Log.List(c.Request.Context(), q)
	}, viewEvent, func(e audit.Event) web.Cursor { return web.Cursor{At: e.ID} })
}

func viewEvent(e audit.Event) wire.AuditEvent {
	s := e.Source
	return wire.AuditEvent{
		ID: views.ID(e.ID), At: wire.At(e.At), Action: string(e.Action), Actor: wire.NullText(s.Actor), Role: wire.NullText(s.Role),
		KeyID: wire.NullText(s.KeyID), IP: wire.NullText(s.IP), RequestID: wire.NullText(s.RequestID), Target: wire.NullText(e.Target),
		Detail: wire.NullText(e.Detail), Times: e.Times,
	}
}
