package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// failed makes ada's task DEAD for a reason.
func (s *site) failed(name, cause string) wire.AcceptedTask {
	s.t.Helper()
	t := s.accept(s.secrets["owner"], name, "some text of "+name)
	s.dies(t.TaskID, cause)
	return t
}

func TestFailuresAndFilters(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		a := s.failed("report 2024.txt", "POST http://127.0.0.1:9/v1: connection refused")
		s.failed("other.txt", "POST http://10.0.0.1:90/v1: connection refused")
		s.failed("third.txt", "it is odd")
		get := func(who, path string) wire.List[wire.FailureGroup] {
			w := s.get(s.secrets[who], path)
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			return decode[wire.List[wire.FailureGroup]](t, w)
		}
		groups := get("owner", "/api/knowledge/failures").Items
		require.Len(t, groups, 2)
		refused := groups[1]
		require.Equal(t, "POST <url>: connection refused", refused.Pattern)
		require.EqualValues(t, 2, refused.Tasks)
		require.Equal(t, []string{a.Document.KnowledgeBaseID}, refused.Bases)
		require.Contains(t, refused.Error, "127.0.0.1:9")
		require.Equal(t, groups, get("operator", "/api/knowledge/failures").Items)
		require.Empty(t, get("other", "/api/knowledge/failures").Items)
		page := get("owner", "/api/knowledge/failures?limit=1")
		require.True(t, page.HasMore)
		require.Equal(t, groups[1:], get("owner", "/api/knowledge/failures?limit=1&cursor="+string(page.NextCursor)).Items)

		for expression, want := range map[string]int{
			"group:" + refused.GroupID: 2, "group:" + refused.GroupID + " doc~2024": 1, "status:DEAD": 3, `error~"REFUSED" status:DEAD`: 2, "kb:default status:DEAD": 3,
			"status:DEAD user:ada": 3, "user:bob": 0, "attempt>=1": 3, "refused": 2, "age<1h status:DEAD": 3, "age>1h": 0, "id:" + a.TaskID: 1,
		} {
			w := s.get(s.secrets["owner"], "/api/knowledge/tasks?filter="+url.QueryEscape(expression))
			require.Equal(t, http.StatusOK, w.Code, expression+": "+w.Body.String())
			require.Len(t, decode[wire.List[wire.Task]](t, w).Items, want, expression)
		}
		for query, code := range map[string]string{
			"filter=status:GONE": web.CodeInvalidField, "filter=status:DEAD&status=DEAD": web.CodeInvalidParameter, "filter=kb:none": web.CodeBaseNotFound,
			"filter=group:" + refused.GroupID + "&sort=updatedAt": web.CodeInvalidParameter, "filter=user:%E2%80%AEx": web.CodeInvalidField,
			"filter=kb:default&knowledgeBase=elsewhere": web.CodeInvalidParameter,
		} {
			require.Equal(t, code, s.problem(s.get(s.secrets["owner"], "/api/knowledge/tasks?"+query)).Code, query)
		}
		// a key that is limited to one base
		require.Equal(t, http.StatusOK, s.get(s.secrets["inside"], "/api/knowledge/tasks?knowledgeBase=default&filter=status:DEAD").Code)
		require.Equal(t, web.CodeScope, s.problem(s.get(s.secrets["inside"], "/api/knowledge/tasks?knowledgeBase=default&filter=kb:elsewhere")).Code)
		require.Equal(t, web.CodeScope, s.problem(s.get(s.secrets["inside"], "/api/knowledge/failures")).Code)
	})
}

func TestAnExplanationHasItsEvidence(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config, _ *Deps) { c.TraceURL = "https://traces.example/t/{traceId}?x=1" })
	w := s.do(s.request(s.secrets["owner"], http.MethodPost, "/api/workflows/apply", strings.NewReader(`{"workflowId":"ingest.text","chatId":"1","userText":"a","waitForResult":false}`),
		"Content-Type", "application/json", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	id := decode[wire.WorkflowReply](t, w).Data.TaskID
	explain := func() wire.Explanation {
		w := s.get(s.secrets["owner"], "/api/knowledge/tasks/"+id+"/explain")
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		return decode[wire.Explanation](t, w)
	}
	e := explain()
	require.Empty(t, e.Attempts)
	require.EqualValues(t, "4bf92f3577b34da6a3ce929d0e0e4736", e.TraceID)
	require.EqualValues(t, "https://traces.example/t/4bf92f3577b34da6a3ce929d0e0e4736?x=1", e.TraceURL)
	s.dies(id, "it is odd")
	e = explain()
	require.Len(t, e.Attempts, 1)
	require.EqualValues(t, "PERMANENT", e.Attempts[0].Reason)
	require.False(t, e.Attempts[0].EndedAt.IsZero())
	require.Contains(t, e.Attempts[0].Message, "it is odd")
	for _, statement := range e.SQL { // they work as written
		require.NotEmpty(t, func() (n int) {
			rows, err := s.parts.Store.Reader().QueryContext(t.Context(), statement)
			require.NoError(t, err)
			defer func() { require.NoError(t, rows.Close()) }()
			for rows.Next() {
				n++
			}
			require.NoError(t, rows.Err())
			return n
		}(), statement)
	}
	for url, ok := range map[string]bool{"": true, "http://a/{traceId}": true, "ftp://a/{traceId}": false, "https://a/": false, "javascript:{traceId}": false, ":{traceId}": false} {
		cfg := testConfig()
		cfg.TraceURL = url
		if err := cfg.Validate(); ok {
			require.NoError(t, err, url)
		} else {
			require.ErrorContains(t, err, "OTEL_UI_URL", url)
		}
	}
}

func TestWorkersAndSettings(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		workers := func() []wire.Worker {
			w := s.get(s.secrets["watcher"], "/internal/workers")
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			return decode[wire.List[wire.Worker]](t, w).Items
		}
		require.Empty(t, workers())
		id := s.accept(s.secrets["owner"], "a.txt", "some text").TaskID
		policy := taskstate.Policy{BaseBackoff: time.Second, MaxBackoff: time.Second, Lease: time.Minute, MaxCrashes: 3}
		outs, err := s.parts.Store.Apply(t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: "w-1/1", Process: "w-1", Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w-1"}})
		})})
		require.NoError(t, err)
		require.Equal(t, taskstate.AnswerClaimed, outs[0].Answer)
		all := workers()
		require.Len(t, all, 1)
		require.Equal(t, "w-1", all[0].Name)
		require.True(t, all[0].Alive)
		require.Equal(t, 1, all[0].Running)
		require.Nil(t, all[0].Slots, "its first renewal says it")
		require.NoError(t, s.parts.Store.Renew(t.Context(), "w-1", time.Minute, 0))
		require.Equal(t, 0, *workers()[0].Slots, "all are written off")
		require.Equal(t, id, all[0].Tasks[0].TaskID)
		s.refused(s.get(s.secrets["owner"], "/internal/workers"), http.StatusForbidden, web.CodeForbidden)

		w := s.get(s.secrets["watcher"], "/internal/settings")
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		byName := map[string]wire.Setting{}
		for _, v := range decode[wire.List[wire.Setting]](t, w).Items {
			byName[v.Name] = v
		}
		require.True(t, byName["UPLOAD_DIR"].Changed)
		require.False(t, byName["INGEST_QUEUE"].Changed)
		require.Equal(t, "redis", byName["INGEST_QUEUE"].Default)
		s.refused(s.get(s.secrets["owner"], "/internal/settings"), http.StatusForbidden, web.CodeForbidden)
	})
}

func TestBulkOperationsOverHTTP(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		for i := range 3 {
			s.failed(fmt.Sprintf("%d.txt", i), "it is odd")
		}
		ask := func(who, body string, status int) wire.BulkOperation {
			w := s.send(s.secrets[who], http.MethodPost, "/api/knowledge/bulk", body)
			require.Equal(t, status, w.Code, w.Body.String())
			return decode[wire.BulkOperation](t, w)
		}
		w := s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/bulk", `{"action":"retry","filter":"kb:default","dryRun":true}`)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		p := decode[wire.BulkPreview](t, w)
		require.EqualValues(t, 4, p.Matched)
		require.EqualValues(t, 3, p.Eligible)
		require.Equal(t, map[string]int64{"TASK_NOT_REPLAYABLE": 1}, p.Skipped)
		w = s.send(s.secrets["other"], http.MethodPost, "/api/knowledge/bulk", `{"action":"retry","filter":"error~odd","dryRun":true}`)
		require.Zero(t, decode[wire.BulkPreview](t, w).Matched, "a user's operation reaches the user's own tasks")

		op := ask("owner", `{"action":"retry","filter":"status:DEAD","reason":"mended"}`, http.StatusAccepted)
		require.Equal(t, taskstate.StatusQueued, op.Status)
		require.Nil(t, op.Matched)
		one := "/api/knowledge/bulk/" + op.OperationID
		for _, step := range []struct {
			path string
			want taskstate.Status
		}{{"/pause", "SUSPENDED"}, {"/pause", "SUSPENDED"}, {"/resume", "QUEUED"}, {"/stop", "CANCELLED"}, {"/stop", "CANCELLED"}} {
			w := s.send(s.secrets["owner"], http.MethodPost, one+step.path, "")
			require.Equal(t, http.StatusOK, w.Code, step.path+w.Body.String())
			require.Equal(t, step.want, decode[wire.BulkOperation](t, w).Status, step.path)
		}
		s.refused(s.send(s.secrets["owner"], http.MethodPost, one+"/pause", ""), http.StatusConflict, taskstate.CodeNotReplayable)
		s.refused(s.send(s.secrets["other"], http.MethodPost, one+"/stop", ""), http.StatusNotFound, web.CodeBulkNotFound)
		w = s.get(s.secrets["operator"], "/api/knowledge/bulk")
		require.Equal(t, op.OperationID, decode[wire.List[wire.BulkOperation]](t, w).Items[0].OperationID)

		for body, code := range map[string]string{
			`{"action":"burn","filter":"status:DEAD"}`: web.CodeInvalidField, `{"action":"retry","filter":""}`: web.CodeInvalidField,
			`{"action":"retry","filter":"status:"}`: web.CodeInvalidField, `{"action":"suspend","filter":"status:DEAD"}`: web.CodeForbidden,
			`{"action":"retry","filter":"kb:none"}`: web.CodeBaseNotFound, `{"action":"retry","filter":"a","ratePerSecond":-1}`: web.CodeInvalidField,
			`{"action":"retry","filter":"a","more":1}`: web.CodeBadJSON,
		} {
			require.Equal(t, code, s.problem(s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/bulk", body)).Code, body)
		}
		ask("operator", `{"action":"suspend","filter":"user:ada status:QUEUED"}`, http.StatusAccepted)
		require.Len(t, s.events("task_bulk"), 1, "an operator's is in the audit log")
	})
}

func TestSavedViews(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		save := func(who, body string, status int) wire.View {
			w := s.send(s.secrets[who], http.MethodPost, "/api/knowledge/views", body)
			require.Equal(t, status, w.Code, w.Body.String())
			return decode[wire.View](t, w)
		}
		names := func(who string) (out []string) {
			w := s.get(s.secrets[who], "/api/knowledge/views")
			require.Equal(t, http.StatusOK, w.Code, w.Body.String())
			for _, v := range decode[wire.List[wire.View]](t, w).Items {
				out = append(out, v.Name+"="+v.Filter)
			}
			return out
		}
		first := save("owner", `{"name":"mine ","filter":" status:DEAD "}`, http.StatusOK)
		require.Equal(t, first.ViewID, save("owner", `{"name":"mine","filter":"status:RETRYING"}`, http.StatusOK).ViewID, "replaced")
		save("other", `{"name":"mine","filter":"status:DEAD"}`, http.StatusOK)
		shared := save("operator", `{"name":"all","filter":"attempt>2","shared":true}`, http.StatusOK)
		require.Equal(t, []string{"all=attempt>2", "mine=status:RETRYING"}, names("owner"))
		require.Equal(t, []string{"all=attempt>2", "mine=status:DEAD"}, names("other"))
		for body, code := range map[string]string{
			`{"name":"","filter":"status:DEAD"}`: web.CodeInvalidField, `{"name":"x","filter":"colour:red"}`: web.CodeInvalidField,
			`{"name":"x","filter":"a","shared":true}`: web.CodeForbidden, `{"name":"a\nb","filter":"a"}`: web.CodeInvalidText,
		} {
			require.Equal(t, code, s.problem(s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/views", body)).Code, body)
		}
		s.refused(s.send(s.secrets["owner"], http.MethodDelete, "/api/knowledge/views/"+shared.ViewID, ""), http.StatusNotFound, web.CodeViewNotFound)
		require.Equal(t, http.StatusNoContent, s.send(s.secrets["owner"], http.MethodDelete, "/api/knowledge/views/"+first.ViewID, "").Code)
		require.Equal(t, []string{"all=attempt>2"}, names("owner"))
		for i := range 100 {
			save("owner", fmt.Sprintf(`{"name":"%d","filter":"a"}`, i), http.StatusOK)
		}
		require.Equal(t, web.CodeInvalidField, s.problem(s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/views", `{"name":"x","filter":"a"}`)).Code)
		save("owner", `{"name":"7","filter":"b"}`, http.StatusOK)
	})
}
