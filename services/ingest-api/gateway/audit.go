package gateway

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
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

// eventView is one row of the audit log.
type eventView struct {
	ID        string       `json:"id"`
	At        string       `json:"at"`
	Action    audit.Action `json:"action"`
	Actor     *string      `json:"actor"` // null: nobody proved who he is
	Role      *string      `json:"role"`
	KeyID     *string      `json:"keyId"`
	IP        *string      `json:"ip"` // of failed logins the network; null: the command line
	RequestID *string      `json:"requestId"`
	Target    *string      `json:"target"`
	Detail    *string      `json:"detail"`
	Times     int          `json:"times"` // attempts of one kind are counted together
}

func viewEvent(e audit.Event) eventView {
	s := e.Source
	return eventView{
		ID: formatID(e.ID), At: formatTime(e.At), Action: e.Action, Actor: optional(s.Actor), Role: optional(string(s.Role)),
		KeyID: optional(s.KeyID), IP: optional(s.IP), RequestID: optional(s.RequestID), Target: optional(e.Target),
		Detail: optional(e.Detail), Times: e.Times,
	}
}
