// Package workflows asks for workflows and shows what became of them.
package workflows

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/pkg/workflow"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	defaultRetries, maxRetries = 3, 10
	defaultWait, maxWait       = 20, 120 // seconds
	maxChat                    = 190     // characters
	maxTimestamp               = 64      // characters
	maxPayload                 = 256 << 10
)

// Handler asks for workflows.
type Handler struct {
	Svc      ingest.Service
	Known    *workflow.Registry // nil: payloads are checked by the workers alone
	Limiter  ratelimit.Limiter  // of uploads; nil: no limit
	Metrics  *web.Metrics
	Draining <-chan struct{} // closed at a stop
}

// Routes are the addresses.
func (g *Handler) Routes() []web.Route {
	return []web.Route{
		web.On(http.MethodPost, "/api/workflows/apply", web.AccessWrite, nil, g.apply),
		web.On(http.MethodPost, "/api/knowledge/bases/:base/reindex", web.AccessWrite, []string{"waitSeconds"}, web.Of(web.BaseName, g.reindex)).In(web.BaseOfPath),
		web.On(http.MethodGet, "/api/workflows/tasks/:taskId", web.AccessRead, nil, web.Of(web.ID("taskId", taskstate.ErrNotFound), g.task)).In(web.BaseOfTask),
	}
}

func (g *Handler) task(c *gin.Context, id string) error {
	return web.Show(c, func(t taskstate.Task) wire.WorkflowReply { return views.Workflow(c, t) })(g.Svc.Task(c.Request.Context(), web.Caller(c), id))
}

// apply makes the task and waits for its end: 200 when it came, 202 when it did not come yet.
func (g *Handler) apply(c *gin.Context) error {
	if web.Stopped(g.Draining) {
		return &web.Error{Code: web.CodeStopping}
	}
	header, err := web.IdempotencyKey(c.Request.Header)
	if err != nil {
		return err
	}
	if err := web.TakeToken(c, g.Limiter, g.Metrics); err != nil {
		return err
	}
	var body wire.WorkflowApply
	if err := web.ReadJSON(c, &body, false); err != nil {
		return err
	}
	who := web.Caller(c)
	request, err := g.request(who, body, header)
	if err != nil {
		return err
	}
	wait := defaultWait
	if body.WaitTimeoutSeconds != nil {
		wait = *body.WaitTimeoutSeconds
	}
	if err := web.Within("waitTimeoutSeconds", wait, 1, maxWait); err != nil {
		return err
	}
	if body.WaitForResult != nil && !*body.WaitForResult {
		wait = 0
	}
	return g.submit(c, who, request, wait)
}

// reindex makes the documents of a base anew that were made with other readers or another chunking.
func (g *Handler) reindex(c *gin.Context, name string) error {
	if web.Stopped(g.Draining) {
		return &web.Error{Code: web.CodeStopping}
	}
	var body wire.Reindex
	if err := web.ReadJSON(c, &body, true); err != nil {
		return err
	}
	wait := 0
	if body.DryRun {
		wait = defaultWait
	}
	p := web.ParamsOf(c)
	if wait = p.Int("waitSeconds", wait, 0, maxWait); p.Err() != nil {
		return p.Err()
	}
	who := web.Caller(c)
	who.Scope.Role = taskstate.RoleUser // its documents are uploaded anew, which is their owner's
	base, err := g.Svc.Base(c.Request.Context(), who, name)
	if err != nil {
		return err
	}
	header, err := web.IdempotencyKey(c.Request.Header)
	if err != nil {
		return err
	}
	if err := web.TakeToken(c, g.Limiter, g.Metrics); err != nil {
		return err
	}
	payload, err := json.Marshal(workflows.Reindexing{KnowledgeBase: base.ID, DryRun: body.DryRun})
	if err != nil {
		return err
	}
	request, err := g.request(who, wire.WorkflowApply{
		WorkflowID: workflows.ReindexBase, ChatID: base.ID, Payload: payload, RetryMax: new(maxRetries),
	}, header)
	if err != nil {
		return err
	}
	return g.submit(c, who, request, wait)
}

// submit makes a task and waits some seconds for its end: 200 when it came, 202 when it did not come yet.
func (g *Handler) submit(c *gin.Context, who ingest.Caller, request tasks.Request, wait int) error {
	got, errs := g.Svc.Submit(c.Request.Context(), who, request)
	if errs[0] != nil {
		return errs[0]
	}
	t, ended := got[0].Task, got[0].Task.Status.Terminal()
	if !ended && wait > 0 {
		ended = web.Await(c, g.Svc, who, &t, time.Duration(wait)*time.Second, g.Draining)
	}
	web.Locate(c, "/api/workflows/tasks/"+t.ID)
	if got[0].Replayed {
		c.Writer.Header().Set("Idempotency-Replayed", "true")
	}
	status, reply := http.StatusAccepted, views.Workflow(c, t)
	if ended {
		status = http.StatusOK
	} else if got[0].Waits {
		reply.Data.Delivery = wire.WaitingForRedis
	}
	return web.JSON(c, status, reply)
}

// request checks a body and makes the task's request of it.
func (g *Handler) request(who ingest.Caller, body wire.WorkflowApply, header string) (tasks.Request, error) {
	if err := workflow.CheckID(body.WorkflowID); err != nil {
		return tasks.Request{}, web.Errorf(web.CodeInvalidField, "%s", err).About("workflowId")
	}
	about, err := readMetadata(body.Metadata)
	if err != nil {
		return tasks.Request{}, err
	}
	chat := strings.TrimSpace(body.ChatID)
	if chat == "" {
		chat = about.chat
	}
	if chat == "" {
		return tasks.Request{}, (&web.Error{Code: web.CodeChatRequired}).About("chatId")
	}
	if err := ingest.CheckLine("chatId", chat, maxChat); err != nil {
		return tasks.Request{}, err
	}
	r := tasks.Request{Type: workflow.Type, WorkflowID: body.WorkflowID, ChatID: chat, MaxAttempts: defaultRetries}
	if body.RetryMax != nil {
		r.MaxAttempts = *body.RetryMax
	}
	if err := web.Within("retryMax", r.MaxAttempts, 1, maxRetries); err != nil {
		return tasks.Request{}, err
	}
	asked := workflow.Request{
		UserText: body.UserText, Payload: body.Payload, Metadata: body.Metadata, History: body.History, Policy: body.Policy,
		CoreEnvelope: body.CoreEnvelope, Telemetry: body.Telemetry, User: body.User,
	}
	if err := g.check(body.WorkflowID, asked); err != nil {
		return tasks.Request{}, err
	}
	if r.Payload, err = json.Marshal(asked); err != nil {
		return tasks.Request{}, web.Errorf(web.CodeBadJSON, "%s", err)
	}
	if len(r.Payload) > maxPayload {
		return tasks.Request{}, web.Errorf(web.CodeTooLarge, "userText, payload and the other members have %d bytes together; allowed are %d: send large content as a document and name it here",
			len(r.Payload), maxPayload).About("payload")
	}
	if r.IdempotencyKey, err = key(who, body, header, chat, about.timestamp); err != nil {
		return tasks.Request{}, err
	}
	if r.IdempotencyKey != "" {
		sum := sha256.New()
		_, _ = fmt.Fprintf(sum, "%q %q %d ", r.WorkflowID, chat, r.MaxAttempts)
		_, _ = sum.Write(r.Payload)
		r.Hash = hex.EncodeToString(sum.Sum(nil))
	}
	return r, nil
}

// check compares the payload with the schema of a workflow that this process knows; the others are the workers'.
func (g *Handler) check(id string, r workflow.Request) error {
	if g.Known == nil {
		return nil
	}
	var wrong *workflow.PayloadError
	if err := g.Known.Check(id, r); errors.As(err, &wrong) {
		return web.Errorf(web.CodeInvalidField, "%s", wrong).About(web.Cut("payload"+wrong.Path, web.MaxFilter))
	}
	return nil
}

// key is the idempotency key of a request: the one that it names, else one that is made of the request's own timestamp; empty: a
// repeated request is another task.
func key(who ingest.Caller, body wire.WorkflowApply, header, chat, timestamp string) (string, error) {
	named := body.IdempotencyKey
	switch {
	case named != "" && header != "" && named != header:
		return "", web.Errorf(web.CodeInvalidKey, "the header Idempotency-Key and the field idempotencyKey differ; send one of them").About("idempotencyKey")
	case named != "" && !web.IsKey(named):
		return "", (&web.Error{Code: web.CodeInvalidKey}).About("idempotencyKey")
	case named != "":
		return named, nil
	case header != "":
		return header, nil
	case timestamp != "":
		return strings.Join([]string{who.Channel, body.WorkflowID, chat, timestamp}, ":"), nil
	}
	return "", nil
}

// metadata is what is read of a request's metadata.
type metadata struct{ chat, timestamp string }

// readMetadata reads chat_id and timestamp: texts or numbers.
func readMetadata(text json.RawMessage) (m metadata, err error) {
	if len(text) == 0 || string(text) == "null" {
		return m, nil
	}
	var all map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&all) != nil {
		return m, web.Errorf(web.CodeInvalidField, "metadata is not an object").About("metadata")
	}
	if m.chat, err = word(all, "chat_id", maxChat); err == nil {
		m.timestamp, err = word(all, "timestamp", maxTimestamp)
	}
	return m, err
}

// word is a member that is a text or a number, without white space around it; empty: there is none.
func word(all map[string]any, name string, limit int) (string, error) {
	field := "metadata." + name
	switch v := all[name].(type) {
	case nil:
		return "", nil
	case string:
		v = strings.TrimSpace(v)
		return v, ingest.CheckLine(field, v, limit)
	case json.Number:
		return v.String(), ingest.CheckLine(field, v.String(), limit)
	}
	return "", web.Errorf(web.CodeInvalidField, "%s is neither a text nor a number", field).About(field)
}
