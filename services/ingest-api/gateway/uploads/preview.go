package uploads

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/pkg/workflow"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// previewAttempts is after how many a preview is given up.
const previewAttempts = 3

// previewFields are those of the form of a preview; none stands in the query.
func previewFields() []string { return []string{"knowledgeBase", "chunking", "limit"} }

// preview shows how a document would be cut and what it would cost: one that there is, named in a JSON body, or the file of a form.
// A worker reads it, as it reads every document.
func (g *Handler) preview(c *gin.Context) error {
	p := web.ParamsOf(c)
	wait := p.Int("waitSeconds", defaultWait, 0, maxWait)
	if p.Err() != nil {
		return p.Err()
	}
	in, err := g.newIntake(c, previewFields())
	if err != nil {
		return err
	}
	if kind, _, _ := mime.ParseMediaType(c.Request.Header.Get("Content-Type")); kind == "application/json" {
		err = in.readPreview(c)
	} else {
		err = g.takeIn(c, in, 1)
	}
	if err != nil {
		return err
	}
	if err := g.previewWithin(c, in); err != nil {
		g.discard(in)
		return err
	}
	t, replayed, err := g.submitPreview(c, in)
	if err != nil {
		return err
	}
	done := t.Status.Terminal() || web.Await(c, g.Svc, in.who, &t, time.Duration(wait)*time.Second, g.Draining)
	web.Locate(c, "/api/workflows/tasks/"+t.ID)
	if replayed {
		c.Writer.Header().Set("Idempotency-Replayed", "true")
	}
	status := http.StatusAccepted
	if done {
		status = http.StatusOK
	}
	v, err := views.Preview(t)
	if err != nil {
		return err
	}
	return web.JSON(c, status, v)
}

// previewWithin refuses a preview that a key which is limited to knowledge bases asks for in another one.
func (g *Handler) previewWithin(c *gin.Context, in *intake) error {
	if in.documentID == "" {
		return web.WithinBase(c, g.Svc, in.base)
	}
	if web.RequestOf(c).Principal.Bases == nil {
		return nil
	}
	d, err := g.Svc.Document(c.Request.Context(), in.who, in.documentID)
	if err != nil {
		return err
	}
	return web.WithinBase(c, g.Svc, d.BaseID)
}

// readPreview reads the body that names a document.
func (in *intake) readPreview(c *gin.Context) error {
	var body wire.PreviewRequest
	if err := web.ReadJSON(c, &body, false); err != nil {
		return err
	}
	in.documentID = strings.ToLower(body.DocumentID)
	if !web.IsUUID(in.documentID) {
		return web.Errorf(web.CodeInvalidField, "documentId is %s, allowed is a UUID; to look at a file send it as multipart/form-data", web.Shown(body.DocumentID)).About("documentId")
	}
	in.preview.Limit = body.Limit
	if body.Limit != nil {
		if err := web.Within("limit", *body.Limit, 0, workflows.MaxShown); err != nil {
			return err
		}
	}
	if body.Chunking != nil {
		o := views.ChunkOptions(*body.Chunking)
		in.preview.Chunking = &o
		_, err := o.Chunking("chunking.")
		return err
	}
	return nil
}

// setPreview takes one field of a preview's form.
func (in *intake) setPreview(name, text string) error {
	if name == "limit" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return web.Errorf(web.CodeInvalidField, "limit is %s, allowed is 0 to %d", web.Shown(text), workflows.MaxShown).About(name)
		}
		in.preview.Limit = &n
		return web.Within(name, n, 0, workflows.MaxShown)
	}
	if text == "" { // as a form of HTML says that nothing was chosen
		return nil
	}
	var w wire.Chunking
	if err := web.DecodeJSON("chunking", []byte(text), &w); err != nil {
		return err
	}
	o := views.ChunkOptions(w)
	in.preview.Chunking = &o
	_, err := o.Chunking("chunking.")
	return err
}

// submitPreview makes the task of a preview. The file is discarded when there is none, or when an earlier request has made it.
func (g *Handler) submitPreview(c *gin.Context, in *intake) (taskstate.Task, bool, error) {
	asked, id := in.preview, ""
	asked.DocumentID, asked.KnowledgeBase = in.documentID, in.base
	if in.documentID == "" {
		f := in.files[0]
		if f.err != nil {
			return taskstate.Task{}, false, f.err
		}
		if err := (&ingest.Upload{File: f.file}).Clean(); err != nil { // an archive is no document
			g.discard(in)
			return taskstate.Task{}, false, err
		}
		if in.base != "" {
			if _, err := g.Svc.Base(c.Request.Context(), in.own(), in.base); err != nil {
				g.discard(in)
				return taskstate.Task{}, false, err
			}
		}
		asked.File, id = workflows.FileOf(f.file), f.file.ID
	} else if _, err := g.Svc.Document(c.Request.Context(), in.own(), in.documentID); err != nil {
		return taskstate.Task{}, false, err
	}
	r := tasks.Request{ID: id, Type: workflow.Type, WorkflowID: workflows.PreviewDocument, MaxAttempts: previewAttempts, IdempotencyKey: in.key}
	payload, err := json.Marshal(asked)
	if err == nil {
		r.Payload, err = json.Marshal(workflow.Request{Payload: payload})
	}
	if err != nil {
		g.discard(in)
		return taskstate.Task{}, false, err
	}
	if in.key != "" {
		sum := sha256.Sum256(payload)
		r.Hash = hex.EncodeToString(sum[:])
	}
	got, errs := g.Svc.Submit(c.Request.Context(), in.own(), r)
	if errs[0] != nil && !errors.Is(errs[0], taskstate.ErrOutcomeUnknown) || errs[0] == nil && got[0].Replayed {
		g.discard(in)
	}
	if errs[0] != nil {
		return taskstate.Task{}, false, errs[0]
	}
	return got[0].Task, got[0].Replayed, nil
}

// own is the caller as a user: an operator's preview shows no document of others.
func (in *intake) own() ingest.Caller {
	who := in.who
	who.Scope.Role = taskstate.RoleUser
	return who
}
