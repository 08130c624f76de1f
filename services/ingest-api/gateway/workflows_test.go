package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/pkg/workflow"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const (
	applyPath   = "/api/workflows/apply"
	workflowsOf = "/api/workflows/tasks/"
)

// applied asks for a workflow and does not wait.
func (b *bench) applied(who, body string, headers ...string) wire.WorkflowReply {
	b.t.Helper()
	w := b.send(who, http.MethodPost, applyPath, strings.TrimSuffix(body, "}")+`,"waitForResult":false}`, headers...)
	require.Equal(b.t, http.StatusAccepted, w.Code, w.Body.String())
	got := decode[wire.WorkflowReply](b.t, w)
	require.Equal(b.t, workflowsOf+got.Data.TaskID, w.Header().Get("Location"))
	require.Equal(b.t, w.Header().Get("X-Request-Id"), got.Meta.RequestID)
	return got
}

func TestAWorkflowsTaskKeepsTheRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const body = `{"workflowId":"echo","userText":"hi","payload":{"a":[1, 2]},"metadata":{"chat_id":-42,"x":1},"history":[{"role":"user"}],
		"policy":"p","coreEnvelope":{"v":1},"telemetry":{"t":true},"user":{"name":"Ada"},"retryMax":10}`
	got := b.applied(ada, body)
	require.Equal(t, taskstate.StatusQueued, got.Data.Status)
	require.Equal(t, wire.WorkflowRetry{Max: 10}, got.Data.Retry)
	require.Nil(t, got.Data.Error)
	row, err := b.parts.Store.Get(t.Context(), taskstate.System(), got.Data.TaskID)
	require.NoError(t, err)
	require.Equal(t, []any{workflow.Type, "echo", "-42", "http", ada, ""}, []any{row.Type, row.WorkflowID, row.ChatID, row.Channel, row.UserID, row.IdempotencyKey})
	require.JSONEq(t, `{"userText":"hi","payload":{"a":[1,2]},"metadata":{"chat_id":-42,"x":1},"history":[{"role":"user"}],
		"policy":"p","coreEnvelope":{"v":1},"telemetry":{"t":true},"user":{"name":"Ada"}}`, string(row.Payload))
	require.NotEqual(t, got.Data.TaskID, b.applied(ada, body).Data.TaskID, "without key and timestamp each request is one of its own")
}

// A double click is one task: by the key of either place, or by the request's own timestamp. Another body with it is refused.
func TestAWorkflowIsAskedForTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const start = `{"workflowId":"echo","chatId":"7"`
	for name, c := range map[string]struct {
		rest    string
		headers []string
		key     string
	}{
		"field":     {`,"idempotencyKey":"a key"}`, nil, "a key"},
		"header":    {`}`, []string{"Idempotency-Key", "h"}, "h"},
		"both":      {`,"idempotencyKey":"same"}`, []string{"Idempotency-Key", "same"}, "same"},
		"timestamp": {`,"metadata":{"timestamp":1732752000}}`, nil, "http:echo:7:1732752000"},
		"text":      {`,"metadata":{"timestamp":" 1732752000-7 "}}`, nil, "http:echo:7:1732752000-7"},
		"wins":      {`,"idempotencyKey":"k","metadata":{"timestamp":1}}`, nil, "k"},
	} {
		first := b.applied(ada, start+c.rest, c.headers...)
		row, err := b.parts.Store.Get(t.Context(), taskstate.System(), first.Data.TaskID)
		require.NoError(t, err)
		require.Equal(t, c.key, row.IdempotencyKey, name)
		w := b.send(ada, http.MethodPost, applyPath, start+`,"waitForResult":false`+c.rest, c.headers...)
		require.Equal(t, []any{http.StatusAccepted, "true"}, []any{w.Code, w.Header().Get("Idempotency-Replayed")}, name)
		require.Equal(t, first.Data.TaskID, decode[wire.WorkflowReply](t, w).Data.TaskID, name)
		b.refused(b.send(ada, http.MethodPost, applyPath, start+`,"userText":"other"`+c.rest, c.headers...), http.StatusUnprocessableEntity, web.CodeKeyReused)
		require.NotEqual(t, first.Data.TaskID, b.applied(bob, start+c.rest, c.headers...).Data.TaskID, "another user's key is another")
	}
}

func TestBadRequestsForWorkflows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	long := strings.Repeat("x", 10_000)
	for body, want := range map[string]struct {
		status          int
		code, parameter string
		words           string
	}{
		`{"chatId":"7"}`:                                                                       {422, web.CodeInvalidField, "workflowId", "1 to 190 printable"},
		`{"workflowId":"a b","chatId":"7"}`:                                                    {422, web.CodeInvalidField, "workflowId", "without spaces"},
		`{"workflowId":"echo"}`:                                                                {422, web.CodeChatRequired, "chatId", "names no chat"},
		`{"workflowId":"echo","chatId":"  "}`:                                                  {422, web.CodeChatRequired, "chatId", ""},
		`{"workflowId":"echo","chatId":"` + long + `"}`:                                        {422, web.CodeFieldTooLong, "chatId", "190"},
		`{"workflowId":"echo","chatId":"a\nb"}`:                                                {422, web.CodeInvalidText, "chatId", ""},
		`{"workflowId":"echo","metadata":{"chat_id":"` + long + `"}}`:                          {422, web.CodeFieldTooLong, "metadata.chat_id", "190"},
		`{"workflowId":"echo","metadata":{"chat_id":{}}}`:                                      {422, web.CodeInvalidField, "metadata.chat_id", "neither a text nor a number"},
		`{"workflowId":"echo","metadata":[]}`:                                                  {422, web.CodeInvalidField, "metadata", "not an object"},
		`{"workflowId":"echo","chatId":"7","metadata":{"timestamp":"` + long + `"}}`:           {422, web.CodeFieldTooLong, "metadata.timestamp", "64"},
		`{"workflowId":"echo","chatId":"7","retryMax":0}`:                                      {422, web.CodeInvalidField, "retryMax", "allowed is 1 to 10"},
		`{"workflowId":"echo","chatId":"7","retryMax":11}`:                                     {422, web.CodeInvalidField, "retryMax", "11"},
		`{"workflowId":"echo","chatId":"7","waitTimeoutSeconds":0}`:                            {422, web.CodeInvalidField, "waitTimeoutSeconds", "1 to 120"},
		`{"workflowId":"echo","chatId":"7","waitTimeoutSeconds":121}`:                          {422, web.CodeInvalidField, "waitTimeoutSeconds", "121"},
		`{"workflowId":"echo","chatId":"7","idempotencyKey":"ä"}`:                              {400, web.CodeInvalidKey, "idempotencyKey", ""},
		`{"workflowId":"echo","chatId":"7","userText":"` + strings.Repeat("x", 256<<10) + `"}`: {413, web.CodeTooLarge, "payload", "allowed are 262144"},
		`{"workflowId":"echo","chatId":"7","extra":1}`:                                         {400, web.CodeBadJSON, "extra", "extra"},
		`{"workflowId":"ingest.text","chatId":"7"}`:                                            {422, web.CodeInvalidField, "payload", "text"},
		`{"workflowId":"ingest.text","chatId":"7","payload":{"text":1}}`:                       {422, web.CodeInvalidField, "payload/text", "string"},
		`{"workflowId":"ingest.url","chatId":"7","payload":{"url":"x","knowledgeBase":1}}`:     {422, web.CodeInvalidField, "payload/knowledgeBase", ""},
		`{"workflowId":"delete.document","chatId":"7","payload":{"documentId":"x"}}`:           {422, web.CodeInvalidField, "payload/documentId", "uuid"},
		`{"workflowId":"ingest.text","chatId":"7","payload":[]}`:                               {422, web.CodeInvalidField, "payload", "not an object"},
	} {
		name := body[:min(len(body), 120)]
		p := b.refused(b.send(ada, http.MethodPost, applyPath, body), want.status, want.code)
		require.Equal(t, want.parameter, p.Parameter, name)
		require.Contains(t, p.Message, want.words, name)
	}
	b.refused(b.send(ada, http.MethodPost, applyPath, `{"workflowId":"echo","chatId":"7","idempotencyKey":"a"}`, "Idempotency-Key", "b"), 400, web.CodeInvalidKey)
	require.Zero(t, b.count(t, "ingest_task"))
}

// A request that waits has the result when the task ends, and the task's state when the time is over.
func TestAWorkflowsResultIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	go func() {
		id := <-b.svc.watching
		b.work(t, id, taskstate.StatusRunning)
		b.work(t, id, taskstate.StatusSucceeded)
	}()
	w := b.send(ada, http.MethodPost, applyPath, `{"workflowId":"echo","chatId":"7","waitTimeoutSeconds":120}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	got := decode[wire.WorkflowReply](t, w).Data
	require.Equal(t, taskstate.StatusSucceeded, got.Status)
	require.Equal(t, http.StatusOK, b.get(ada, workflowsOf+got.TaskID).Code)

	go func() {
		id := <-b.svc.watching
		b.work(t, id, taskstate.StatusRunning)
		b.work(t, id, taskstate.StatusDead)
	}()
	w = b.send(ada, http.MethodPost, applyPath, `{"workflowId":"echo","chatId":"7","waitTimeoutSeconds":120}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	got = decode[wire.WorkflowReply](t, w).Data
	require.Equal(t, taskstate.StatusDead, got.Status)
	require.Equal(t, "no use", got.Error.Message)

	go func() {
		_, err := b.app.Suspend(context.WithoutCancel(t.Context()), ingest.Caller{Scope: taskstate.System()}, <-b.svc.watching, "look")
		assert.NoError(t, err)
	}()
	w = b.send(ada, http.MethodPost, applyPath, `{"workflowId":"echo","chatId":"7","waitTimeoutSeconds":120}`)
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	require.Equal(t, taskstate.StatusSuspended, decode[wire.WorkflowReply](t, w).Data.Status)

	w = b.send(ada, http.MethodPost, applyPath, `{"workflowId":"echo","chatId":"7","waitTimeoutSeconds":1}`)
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	require.Equal(t, taskstate.StatusQueued, decode[wire.WorkflowReply](t, w).Data.Status)
	<-b.svc.watching
	b.g.Drain()
	b.refused(b.send(ada, http.MethodPost, applyPath, `{"workflowId":"echo","chatId":"7"}`), http.StatusServiceUnavailable, web.CodeStopping)
}

// The result of a task is shown as the JSON that it is; another's task is unknown.
func TestAWorkflowsResultIsShown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.applied(ada, `{"workflowId":"echo","chatId":"7"}`).Data.TaskID
	b.work(t, id, taskstate.StatusRunning)
	require.NoError(t, b.parts.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, `UPDATE ingest_task_body SET result = '{"n":[1,2]}' WHERE id = ?`, id)
		return err
	}))
	w := b.get(ada, workflowsOf+id)
	require.JSONEq(t, `{"n":[1,2]}`, string(decode[wire.WorkflowReply](t, w).Data.Result))
	b.refused(b.get(bob, workflowsOf+id), http.StatusNotFound, web.CodeTaskNotFound)
	b.refused(b.get(ada, workflowsOf+"7"), http.StatusNotFound, web.CodeTaskNotFound)
	require.Equal(t, http.StatusOK, b.get(operator, workflowsOf+id).Code)
	document := b.accept(ada, "a.txt", "x").TaskID
	require.Equal(t, document, decode[wire.WorkflowReply](t, b.get(ada, workflowsOf+document)).Data.TaskID)
}

// Workflows count as uploads do: ingest.text takes documents in too.
func TestWorkflowsCountForTheUploadLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config, _ *Deps) { c.UploadRateLimit = 1 })
	b.applied(ada, `{"workflowId":"echo","chatId":"7"}`)
	p := b.refused(b.send(ada, http.MethodPost, applyPath, `{"workflowId":"echo","chatId":"7"}`), http.StatusTooManyRequests, web.CodeRateLimited)
	require.Positive(t, p.RetryAfter)
}

// FuzzApply: whatever comes is refused or becomes a task that keeps it.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{
		`{"workflowId":"echo","chatId":"7"}`, `{"workflowId":"ingest.text","chatId":"7","userText":"\u0000"}`, `{"workflowId":"ingest.url","metadata":{"chat_id":1e400}}`,
		`{"workflowId":"echo","chatId":"7","history":[[[[[[]]]]]],"policy":null}`, `{"workflowId":"echo","chatId":"\ud800","metadata":{"timestamp":0.1}}`,
	} {
		f.Add(seed)
	}
	b := newBench(f)
	f.Fuzz(func(t *testing.T, body string) {
		b := *b
		b.t = t
		var fields map[string]any
		if json.Unmarshal([]byte(body), &fields) != nil || fields["waitForResult"] != nil {
			return
		}
		w := b.send(ada, http.MethodPost, applyPath, fmt.Sprintf("%s,\"waitForResult\":false}", strings.TrimSuffix(strings.TrimSpace(body), "}")))
		require.Contains(t, []int{202, 400, 413, 422}, w.Code, "%s: %s", body, w.Body)
	})
}
