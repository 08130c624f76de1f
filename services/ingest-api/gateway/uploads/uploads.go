// Package uploads takes documents in.
//
// uploads.go has the routes, preview.go those that are only looked at, intake.go one request as it is taken in, multipart.go the form and its limits.
package uploads

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/shares"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	defaultWait = 20  // seconds
	maxWait     = 120 // seconds
	// acceptTimeout bounds the commit of a received file; it does not end with the client's connection.
	acceptTimeout = 30 * time.Second
)

// formFields are the text fields of an upload; they may come before or after the files, or in the query.
func formFields() []string { return append(versionFields(), "knowledgeBase") }

// versionFields are those of an upload to a document that there is.
func versionFields() []string { return []string{"title", "metadata", "force"} }

// Handler takes documents in.
type Handler struct {
	Svc      ingest.Service
	Limits   Limits
	Limiter  ratelimit.Limiter // nil: no limit
	Shares   *shares.Shares
	Metrics  *web.Metrics
	Now      func() time.Time
	Log      *slog.Logger
	Draining <-chan struct{} // closed at a stop
}

// Limits bound one upload request.
type Limits struct {
	FileBytes, RequestBytes int64
	Idle, Longest           time.Duration
	MinRate                 int64 // bytes a second; 0: no limit
}

// Routes are the addresses.
func (g *Handler) Routes() []web.Route {
	const documents = "/api/knowledge/documents"
	form := formFields()
	return []web.Route{
		web.On(http.MethodPost, documents+"/upload-async", web.AccessUpload, form, g.uploadAsync).In(web.BaseOfBody),
		web.On(http.MethodPost, documents+"/upload", web.AccessUpload, append([]string{"waitSeconds"}, form...), g.uploadSync).In(web.BaseOfBody),
		web.On(http.MethodPost, "/api/knowledge/preview", web.AccessWrite, []string{"waitSeconds"}, g.preview).In(web.BaseOfBody),
		web.On(http.MethodPut, documents+"/:documentId", web.AccessWrite, versionFields(), web.Of(web.DocumentID, g.putDocument)).In(web.BaseOfDocument),
		web.On(http.MethodPost, documents+"/:documentId/rollback", web.AccessWrite, nil, web.Of(web.DocumentID, g.rollback)).In(web.BaseOfDocument),
	}
}

func (g *Handler) uploadAsync(c *gin.Context) error {
	in, err := g.takeAll(c)
	if err != nil {
		return err
	}
	return g.answerUpload(c, in, false)
}

// takeAll takes the files of a request in.
func (g *Handler) takeAll(c *gin.Context) (*intake, error) {
	in, err := g.newIntake(c, formFields())
	if err != nil {
		return nil, err
	}
	return in, g.receiveAll(c, in, maxParts)
}

// uploadSync is uploadAsync that waits for the tasks to end.
func (g *Handler) uploadSync(c *gin.Context) error {
	p := web.ParamsOf(c)
	wait := p.Int("waitSeconds", defaultWait, 0, maxWait)
	if p.Err() != nil {
		return p.Err()
	}
	in, err := g.takeAll(c)
	if err != nil {
		return err
	}
	done := g.awaitAll(c, in, time.Duration(wait)*time.Second)
	return g.answerUpload(c, in, done)
}

func (g *Handler) putDocument(c *gin.Context, id string) error {
	in, err := g.newIntake(c, versionFields())
	if err != nil {
		return err
	}
	// The new version belongs to who sends it, so only the owner may: operators look at others' documents, they do not write them.
	in.who.Scope.Role = taskstate.RoleUser
	in.who.Guard = views.IfMatch(c)
	// Before the body is read: nobody should send a gigabyte to learn that the document is not his, or has changed.
	d, err := g.Svc.Document(c.Request.Context(), in.who, id)
	if err != nil {
		return err
	}
	// With a key the document may have been changed by this very request's first sending.
	if in.who.Guard != nil && in.key == "" {
		if err := in.who.Guard(d); err != nil {
			return err
		}
	}
	in.documentID = id
	if err := g.receiveAll(c, in, 1); err != nil {
		return err
	}
	return g.answerUpload(c, in, false)
}

// rollback makes a new version of the content of an earlier one.
func (g *Handler) rollback(c *gin.Context, id string) error {
	in, err := g.newIntake(c, nil)
	if err != nil {
		return err
	}
	var body wire.Rollback
	if err := web.ReadJSON(c, &body, true); err != nil {
		return err
	}
	version := int64(0)
	if body.Version != nil {
		if version = *body.Version; version < 1 {
			return web.Errorf(web.CodeInvalidField, "version is %d; a version's number is at least 1", version).About("version")
		}
	}
	in.who.Scope.Role = taskstate.RoleUser // as putDocument's
	in.who.Guard = views.IfMatch(c)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), acceptTimeout)
	defer cancel()
	f := intakeFile{}
	f.accepted, f.err = g.Svc.Rollback(ctx, in.who, id, version, in.key)
	f.name = f.accepted.Document.FileName
	in.files = append(in.files, f)
	g.countUpload(f)
	return g.answerUpload(c, in, false)
}

// answerUpload renders the result: one file → the task, several → a list with a task or an error for each.
// done says that every task has ended.
func (g *Handler) answerUpload(c *gin.Context, in *intake, done bool) error {
	crash.Point("api.before_reply")
	if len(in.files) > 1 {
		return g.answerMany(c, in, done)
	}
	f := in.files[0]
	if f.err != nil {
		return f.err
	}
	status := http.StatusAccepted
	if done || f.accepted.Duplicate && ended(f.accepted.Task) {
		status = http.StatusOK
	}
	if f.accepted.Duplicate && !f.accepted.Replayed {
		status = http.StatusOK // contract §4: the existing document, whatever its last task does
	}
	if f.accepted.Task.ID != "" {
		web.Locate(c, "/api/knowledge/tasks/"+f.accepted.Task.ID)
	}
	if f.accepted.Replayed {
		c.Writer.Header().Set("Idempotency-Replayed", "true")
	}
	return web.JSON(c, status, views.Accepted(f.accepted, f.name))
}

// answerMany is the answer to several files, in their order.
func (g *Handler) answerMany(c *gin.Context, in *intake, done bool) error {
	items := make([]any, len(in.files))
	replayed := true
	for i, f := range in.files {
		if f.err != nil {
			p := web.ProblemOf(web.Classify(f.err), web.RequestOf(c).ID)
			web.LogFailure(c, g.Log, p, f.err)
			items[i], replayed = wire.RefusedFile{FileName: f.name, Error: p}, false
			continue
		}
		items[i] = views.Accepted(f.accepted, f.name)
		replayed = replayed && f.accepted.Replayed
	}
	if replayed {
		c.Writer.Header().Set("Idempotency-Replayed", "true")
	}
	status := http.StatusAccepted
	if done {
		status = http.StatusOK
	}
	return web.JSON(c, status, map[string]any{"items": items})
}

func ended(t taskstate.Task) bool { return t.ID == "" || t.Status.Terminal() }

// awaitAll waits for the accepted tasks to end and puts their last state into the intake; it reports whether all have ended.
func (g *Handler) awaitAll(c *gin.Context, in *intake, limit time.Duration) bool {
	until := time.Now().Add(limit)
	all := true
	for i := range in.files {
		if f := &in.files[i]; f.err == nil {
			left := time.Until(until)
			done := ended(f.accepted.Task) || left > 0 && web.Await(c, g.Svc, in.who, &f.accepted.Task, left, g.Draining)
			all = all && done
		}
	}
	return all
}
