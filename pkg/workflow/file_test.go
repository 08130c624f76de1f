package workflow_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
	pb "github.com/millweir/millweir/proto"
)

// load reads a file with a text.
func load(t *testing.T, text string) ([]workflow.Workflow, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "workflows.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return workflow.Load(path)
}

func TestAFilesMistakesAreNamed(t *testing.T) {
	t.Parallel()
	none, err := workflow.Load("")
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = workflow.Load(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for text, words := range map[string]string{
		"workflows: {": "",
		"workflow: []": "workflow",
		"workflows: [{id: a, kind: shell, url: 'http://h/'}]":                                     `workflow 1 (a): kind "shell": there is only http`,
		"workflows: [{id: a, kind: http, url: 'ftp://h/'}]":                                       "http:// or https://",
		"workflows: [{id: a, kind: http, url: '/x'}]":                                             "http:// or https://",
		"workflows: [{id: a, kind: http, url: 'http://h', retry: 1}]":                             "retry",
		"workflows: [{id: '', kind: http, url: 'http://h'}]":                                      "1 to 190",
		"workflows: [{id: a, kind: http, url: 'http://h', timeoutSeconds: 281}]":                  "1 to 280",
		"workflows: [{id: a, kind: http, url: 'http://h'}, {id: a, kind: http, url: 'http://h'}]": "more than once",
		"workflows: [{id: a, kind: http, url: 'http://h', schema: {type: strange}}]":              "workflow a: schema",
	} {
		_, err := load(t, text)
		require.Error(t, err, text)
		require.ErrorContains(t, err, words, text)
	}
}

// What a service is sent, and what becomes of its responses.
func TestAServiceDoesAWorkflow(t *testing.T) {
	t.Parallel()
	var status int
	var header http.Header
	var body string
	var seen *http.Request
	var sent []byte
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		sent, _ = io.ReadAll(r.Body)
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer service.Close()
	all, err := load(t, "workflows:\n- id: sum\n  kind: http\n  url: "+service.URL+"/run\n  headers: {Authorization: Bearer s3cret}\n  schema: {type: object, required: [n]}\n")
	require.NoError(t, err)
	known, err := workflow.New(all...)
	require.NoError(t, err)
	require.ErrorContains(t, known.Check("sum", workflow.Request{}), "n")
	task := taskstate.Task{
		ID: "01890a5d-ac96-774b-bcce-b302099a8057", UserID: "anna", Type: workflow.Type, WorkflowID: "sum", ChatID: "7", Channel: "http",
		Payload: json.RawMessage(`{"payload":{"n":2}}`), AttemptCount: 1, MaxAttempts: 3, Status: taskstate.StatusRunning,
	}
	run := func() (json.RawMessage, taskstate.Failure) {
		out, err := all[0].Run(t.Context(), workflow.Run{Task: task, Key: task.ID, Report: func(taskstate.Progress) {}})
		if err == nil {
			return out, taskstate.Failure{}
		}
		require.Nil(t, out)
		return nil, workflow.Handler{}.Classify(err)
	}
	for _, c := range []struct {
		status           int
		retryAfter, body string
		result, code     string
		permanent, waits bool
	}{
		{200, "", `{"sum":3}`, `{"sum":3}`, "", false, false},
		{201, "", " 7\n", `7`, "", false, false},
		{204, "", "", ``, "", false, false},
		{200, "", "plain \"words\"", `"plain \"words\""`, "", false, false},
		{202, "", "later", "", workflow.CodeFailed, false, false},
		{202, "3", "later", "", workflow.CodeThrottle, false, true},
		{409, "", "", "", workflow.CodeFailed, false, false},
		{425, "", "", "", workflow.CodeFailed, false, false},
		{429, "", "slowly", "", workflow.CodeThrottle, false, true},
		{500, "", "oops", "", workflow.CodeFailed, false, false},
		{503, "3", "", "", workflow.CodeThrottle, false, true},
		{400, "3", "bad n", "", workflow.CodeRefused, true, false},
		{404, "", "", "", workflow.CodeRefused, true, false},
		{302, "", "", "", workflow.CodeRefused, true, false},
	} {
		status, body, header = c.status, c.body, http.Header{"Location": {"http://127.0.0.1:1/"}}
		if c.retryAfter != "" {
			header.Set("Retry-After", c.retryAfter)
		}
		out, f := run()
		require.Equal(t, []any{c.result, c.code, c.permanent, c.waits}, []any{string(out), f.Code, f.Permanent, f.Throttled}, "%+v", c)
		if c.waits && c.retryAfter != "" {
			require.Equal(t, 3*time.Second, f.RetryAfter)
		}
		if c.code != "" && c.body != "" {
			require.Contains(t, f.Cause, c.body)
			require.NotContains(t, f.Cause, "s3cret")
		}
	}
	require.Equal(t, []string{"POST", "/run", "Bearer s3cret", "application/json", task.ID},
		[]string{seen.Method, seen.URL.Path, seen.Header.Get("Authorization"), seen.Header.Get("Content-Type"), seen.Header.Get("Idempotency-Key")})
	e, err := pb.Decode(sent)
	require.NoError(t, err)
	require.Equal(t, []any{task.ID, "sum", "7", int32(1), int32(3)}, []any{e.GetTaskId(), e.GetWorkflowId(), e.GetChatId(), e.GetRetry().GetCount(), e.GetRetry().GetMax()})

	status, body = 200, `"`+strings.Repeat("x", workflow.MaxResult)
	out, _ := run()
	require.Greater(t, len(out), workflow.MaxResult, "the handler refuses it")
	service.Close()
	_, f := run()
	require.Equal(t, []any{workflow.CodeFailed, false}, []any{f.Code, f.Permanent})
}

// A service that does not respond is given up after the timeout of its entry, and called again.
func TestAServiceThatHangs(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		close(ended)
	}))
	defer service.Close()
	all, err := load(t, "workflows: [{id: a, kind: http, timeoutSeconds: 1, url: '"+service.URL+"'}]")
	require.NoError(t, err)
	_, err = all[0].Run(t.Context(), workflow.Run{Task: taskstate.Task{ID: "t", WorkflowID: "a"}})
	require.ErrorContains(t, err, "Client.Timeout")
	require.False(t, workflow.Handler{}.Classify(err).Permanent)
	<-ended
}
