package gateway

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	wiredredis "github.com/millweir/millweir/pkg/wiring/redis"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// noDeadLetters is an empty desk.
type noDeadLetters struct{}

func (noDeadLetters) Default() dlq.Source { return dlq.SourceTable }
func (noDeadLetters) Stats(context.Context) (dlq.Stats, error) {
	return dlq.Stats{Source: dlq.SourceTable}, nil
}
func (noDeadLetters) List(context.Context, dlq.Query, *dlq.Cursor, int) ([]dlq.DeadLetter, *dlq.Cursor, error) {
	return nil, nil, nil
}
func (noDeadLetters) Get(context.Context, string) (dlq.DeadLetter, error) {
	return dlq.DeadLetter{}, dlq.ErrNotFound
}
func (noDeadLetters) Replay(context.Context, ingest.Caller, string) (taskstate.Task, error) {
	return taskstate.Task{}, dlq.ErrNotFound
}
func (noDeadLetters) ReplayAll(context.Context, ingest.Caller, dlq.Query, dlq.Bulk) (dlq.Result, error) {
	return dlq.Result{}, nil
}
func (noDeadLetters) Drop(context.Context, dlq.NoteFunc, string) error { return dlq.ErrNotFound }
func (noDeadLetters) DropAll(context.Context, dlq.NoteFunc, dlq.Query, dlq.Bulk) (dlq.Result, error) {
	return dlq.Result{}, dlq.ErrNoEntry
}

// dies plays a worker for a task: it claims it and fails for good. It returns the death's fence.
func (s *site) dies(id, cause string) int64 {
	s.t.Helper()
	policy := taskstate.Policy{Lease: time.Minute, MaxCrashes: 9, Slack: time.Second, DLQ: true}
	actor := taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"}
	var token taskstate.Token
	for _, f := range []func(taskstate.DBClock, taskstate.Task) taskstate.Decision{
		func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			token = taskstate.Token{Epoch: m.Epoch, Fence: t.Fence + 1}
			return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: "w/1", Process: "w", Actor: actor, Alone: true})
		},
		func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Fail(policy, m, t, taskstate.Holder{Token: token, Actor: actor}, taskstate.Failure{Cause: cause, Permanent: true})
		},
	} {
		out, err := s.parts.Store.Apply(s.t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(f)})
		require.NoError(s.t, err)
		require.NotNil(s.t, out[0].Change)
	}
	return token.Fence
}

// entry adds one to the dead letter stream.
func (s *site) entry(fields ...string) string {
	s.t.Helper()
	add := wiredredis.Of(s.parts.Transports).Client.B().Xadd().Key(s.shared.Queue.DLQKey).Id("*").FieldValue()
	for i := 0; i < len(fields); i += 2 {
		add = add.FieldValue(fields[i], fields[i+1])
	}
	id, err := wiredredis.Of(s.parts.Transports).Client.Do(s.t.Context(), add.Build()).ToString()
	require.NoError(s.t, err)
	return id
}

// dead is a task of ada's that died, with its entry.
func (s *site) dead(cause string) (task, entry string) {
	s.t.Helper()
	task = s.accept(s.secrets["owner"], "a.txt", uuid.NewString()).TaskID
	fence := s.dies(task, cause)
	return task, s.entry("taskId", task, "fence", fmt.Sprint(fence), "lastError", cause, "attemptCount", "1", "sourceStream", "ingest:tasks",
		"sourceGroup", "ingest-workers", "sourceRecordId", "1-1", "failedAt", "2026-01-02T03:04:05.000006Z")
}

func (s *site) events(action audit.Action) []audit.Event {
	s.t.Helper()
	got, err := s.trail.List(s.t.Context(), audit.Query{Action: action, Limit: 100})
	require.NoError(s.t, err)
	return got
}

const deadLettersPath = "/internal/dlq"

func TestDeadLettersOfOperators(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	op := s.secrets["operator"]
	task, id := s.dead("embed: refused")
	raw := s.entry("lastError", "no envelope", "what", "ever", "binary", "\xff\x00")
	page := decode[wire.List[wire.DeadLetter]](t, s.get(op, deadLettersPath+"?limit=1"))
	require.True(t, page.HasMore)
	require.Equal(t, raw, page.Items[0].ID)
	require.Equal(t, wire.Blob{Value: "/wA=", Encoding: "base64", Bytes: 2}, page.Items[0].Raw["binary"])
	require.EqualValues(t, dlq.ReasonUnreadable, page.Items[0].Reason)
	require.Empty(t, page.Items[0].TaskID)
	page = decode[wire.List[wire.DeadLetter]](t, s.get(op, deadLettersPath+"?limit=1&cursor="+string(page.NextCursor)))
	require.False(t, page.HasMore)
	require.Equal(t, task, string(page.Items[0].TaskID))
	require.Equal(t, &wire.DeadTask{Status: taskstate.StatusDead, Fence: 1}, page.Items[0].Task)
	require.True(t, page.Items[0].Replayable)
	require.Equal(t, page.Items[0], decode[wire.DeadLetter](t, s.get(op, deadLettersPath+"/letters/"+id)))
	for query, want := range map[string]int{"?task=" + task: 1, "?error=REFUSED": 1, "?error=x": 0, "?source=table": 1, "?source=redis": 2, "?failedBefore=2026-01-03T00:00:00Z": 1, "?failedAfter=2026-01-03T00:00:00Z": 1} {
		require.Len(t, decode[wire.List[wire.DeadLetter]](t, s.get(op, deadLettersPath+query)).Items, want, query)
	}
	require.Equal(t, wire.DeadLetterStats{Source: string(dlq.SourceRedis), Entries: 2, Dead: 1}, decode[wire.DeadLetterStats](t, s.get(op, deadLettersPath+"/stats")))

	replay := func(id string) string { return deadLettersPath + "/letters/" + id + "/replay" }
	s.refused(s.send(op, http.MethodPost, replay(raw), ""), http.StatusConflict, web.CodeDeadLetterUnreadable)
	require.Empty(t, s.events(audit.DeadLetterReplay), "what was refused is not noted as done")
	got := decode[wire.InspectedTask](t, s.send(op, http.MethodPost, replay(id), ""))
	require.Equal(t, taskstate.StatusQueued, got.Status)
	require.Equal(t, id, s.events(audit.DeadLetterReplay)[0].Target)
	s.refused(s.send(op, http.MethodPost, replay(id), ""), http.StatusNotFound, web.CodeDeadLetterNotFound)
	p := s.refused(s.send(op, http.MethodPost, replay(dlq.RowID(task, 1)), ""), http.StatusConflict, taskstate.CodeNotReplayable)
	require.Equal(t, taskstate.StatusQueued, p.TaskStatus)
	for _, bad := range []string{"x", "1-1", "..%2f", uuid.NewString()} {
		s.refused(s.get(op, deadLettersPath+"/letters/"+bad), http.StatusNotFound, web.CodeDeadLetterNotFound)
	}
	require.Equal(t, http.StatusNoContent, s.do(s.request(op, http.MethodDelete, deadLettersPath+"/letters/"+raw, nil)).Code)
	require.Equal(t, raw, s.events(audit.DeadLetterDrop)[0].Target)
	s.refused(s.do(s.request(op, http.MethodDelete, deadLettersPath+"/letters/"+dlq.RowID(task, 1), nil)), http.StatusConflict, web.CodeDeadLetterIsRow)
}

// A dead letter that a crash left behind is told as 409 with the state, and goes.
func TestAStaleDeadLetterIsRefusedAndGoes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	op := s.secrets["operator"]
	task, id := s.dead("refused")
	require.Equal(t, http.StatusOK, s.send(op, http.MethodPost, "/api/knowledge/tasks/"+task+"/retry", "").Code)
	v := decode[wire.DeadLetter](t, s.get(op, deadLettersPath+"/letters/"+id))
	require.False(t, v.Replayable)
	require.Equal(t, "the task is QUEUED", string(v.Why))
	s.dies(task, "again")
	p := s.refused(s.send(op, http.MethodPost, deadLettersPath+"/letters/"+id+"/replay", ""), http.StatusConflict, taskstate.CodeNotReplayable)
	require.Equal(t, "the task died again: it is DEAD with fence 2, the dead letter is of fence 1", p.Message)
	s.refused(s.get(op, deadLettersPath+"/letters/"+id), http.StatusNotFound, web.CodeDeadLetterNotFound)
}

func TestDeadLettersInBulk(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	op := s.secrets["operator"]
	var tasks []string
	for i := range 5 {
		task, _ := s.dead(fmt.Sprint("cause ", i%2))
		tasks = append(tasks, task)
	}
	s.entry("lastError", "no envelope", "what", "ever")
	post := func(path, body string) wire.BulkResult {
		w := s.send(op, http.MethodPost, deadLettersPath+path, body)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		return decode[wire.BulkResult](t, w)
	}
	dry := post("/replay", `{"dryRun":true}`)
	require.Equal(t, 5, *dry.Replayed)
	require.Equal(t, map[string]int{"UNREADABLE": 1}, dry.Skipped)
	one := post("/replay", `{"error":"cause 1","limit":1}`)
	require.Equal(t, 1, *one.Replayed)
	require.True(t, one.HasMore)
	rest := post("/replay", `{"error":"cause 1","limit":100,"perSecond":1000,"cursor":"`+string(one.NextCursor)+`"}`)
	require.Equal(t, 1, *rest.Replayed)
	require.False(t, rest.HasMore)
	require.Equal(t, 3, *post("/replay", ``).Replayed)
	require.Equal(t, 0, *post("/replay", ``).Replayed)
	require.Contains(t, s.events(audit.DeadLetterReplay)[2].Detail, "error cause 1")
	for _, task := range tasks {
		require.Equal(t, "QUEUED", string(decode[wire.InspectedTask](t, s.get(op, "/internal/tasks/"+task)).Status))
	}

	_, kept := s.dead("keep me")
	s.refused(s.send(op, http.MethodPost, deadLettersPath+"/drop", ""), http.StatusUnprocessableEntity, web.CodeInvalidField)
	require.Equal(t, 1, *post("/drop", `{"error":"no envelope"}`).Dropped)
	require.Equal(t, http.StatusOK, s.get(op, deadLettersPath+"/letters/"+kept).Code)
	require.Equal(t, 1, *post("/drop", `{"all":true,"dryRun":true}`).Dropped)
	require.Equal(t, 1, *post("/drop", `{"all":true}`).Dropped)
	require.Zero(t, decode[wire.DeadLetterStats](t, s.get(op, deadLettersPath+"/stats")).Entries)
	s.refused(s.send(op, http.MethodPost, deadLettersPath+"/drop", `{"all":true,"source":"table"}`), http.StatusConflict, web.CodeDeadLetterIsRow)
	for _, bad := range []string{`{"source":"mars"}`, `{"limit":1001}`, `{"limit":-1}`, `{"perSecond":-1}`, `{"failedAfter":"0001-01-01T00:00:00Z"}`} {
		s.refused(s.send(op, http.MethodPost, deadLettersPath+"/replay", bad), http.StatusUnprocessableEntity, web.CodeInvalidField)
	}
	s.refused(s.send(op, http.MethodPost, deadLettersPath+"/replay", `{"cursor":"x"}`), http.StatusBadRequest, web.CodeBadCursor)
	s.refused(s.get(op, deadLettersPath+"?source=mars"), http.StatusBadRequest, web.CodeInvalidParameter)

	without := newBench(t, func(_ *Config, d *Deps) { d.DeadLetters = nil })
	without.refused(without.get(operator, deadLettersPath), http.StatusNotFound, web.CodeNotFound)
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	require.Equal(t, wire.Blob{Value: "aä", Encoding: "utf-8", Bytes: 5, Clipped: true}, views.ViewBlobUpTo([]byte("aää"), 4), "no half character")
	require.Equal(t, wire.Blob{Value: "/w==", Encoding: "base64", Bytes: 2, Clipped: true}, views.ViewBlobUpTo([]byte{0xff, 0xfe}, 1))
	require.Equal(t, wire.Blob{Encoding: "utf-8"}, views.Blob(nil))
}
