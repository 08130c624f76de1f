package web

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

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
