package operators

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// listAudit shows the audit log to operators, the newest first.
func (g *Handler) listAudit(c *gin.Context) error {
	limit, after, err := web.Page(c, "audit")
	if err != nil {
		return err
	}
	q := audit.Query{Limit: limit + 1}
	if q.Action, err = web.Word(c, "action", audit.Actions()); err != nil {
		return err
	}
	if q.Actor, err = web.User(c, "actor"); err != nil {
		return err
	}
	if after != nil {
		q.Before = after.At
	}
	rows, err := g.Trail.Log.List(c.Request.Context(), q)
	if err != nil {
		return err
	}
	next := func(e audit.Event) web.Cursor { return web.Cursor{List: "audit", At: e.ID} }
	return web.JSON(c, http.StatusOK, web.PageOf(rows, limit, viewEvent, next))
}

func viewEvent(e audit.Event) wire.AuditEvent {
	s := e.Source
	return wire.AuditEvent{
		ID: views.ID(e.ID), At: wire.At(e.At), Action: string(e.Action), Actor: wire.NullText(s.Actor), Role: wire.NullText(s.Role),
		KeyID: wire.NullText(s.KeyID), IP: wire.NullText(s.IP), RequestID: wire.NullText(s.RequestID), Target: wire.NullText(e.Target),
		Detail: wire.NullText(e.Detail), Times: e.Times,
	}
}
