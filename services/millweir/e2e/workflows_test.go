package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const applyPath = "/api/workflows/apply"

// applied is what the API says of a workflow.
type applied struct {
	Data struct {
		TaskID, Status string
		Result         json.RawMessage
		Retry          struct{ Count, Max int }
		Error          *struct{ Code, Message string }
	}
}

// summer is somebody's service: it adds numbers, and knows what it did for a key.
type summer struct {
	mu      sync.Mutex
	asked   map[string]int // by Idempotency-Key
	refuses int            // so many requests, with 503
	hold    chan string    // takes each key while the request stands still; nil: none does
}

func (s *summer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	s.asked[key]++
	s.refuses--
	refuses, hold := s.refuses >= 0, s.hold
	s.mu.Unlock()
	if hold != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		hold <- key
		<-r.Context().Done()
		return
	}
	if refuses {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var e struct {
		Payload struct{ Payload struct{ A, B int } }
	}
	if json.NewDecoder(r.Body).Decode(&e) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprintf(w, `{"sum":%d}`, e.Payload.Payload.A+e.Payload.Payload.B)
}

// A service of the user's own does a workflow, over each transport; its process is killed while it waits for the service, and the next
// one asks again with the same key.
func TestAWorkflowSurvivesItsProcess(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"redis", "kafka"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			s := &summer{asked: map[string]int{}, refuses: 1}
			service := httptest.NewServer(s)
			t.Cleanup(service.Close)
			file := filepath.Join(t.TempDir(), "workflows.yaml")
			require.NoError(t, os.WriteFile(file, []byte("workflows:\n- {id: sum, kind: http, url: '"+service.URL+"', schema: {required: [a, b]}}\n"), 0o600))
			args := []string{"--data", t.TempDir(), "--addr", "127.0.0.1:0", "--queue", queue}
			env := []string{"WORKFLOWS_FILE=" + file, "INGEST_LEASE_MS=1000", "INGEST_SWEEP_INTERVAL_MS=200"}
			p := start(t, "dev", env, args...)
			c := newClient(t, p.printed(`ready (http://\S+)`))

			const ask = `{"workflowId":"sum","chatId":"1","payload":{"a":2,"b":%d},"metadata":{"timestamp":%d},"waitTimeoutSeconds":60}`
			var got, twice applied
			c.json(http.MethodPost, applyPath, fmt.Sprintf(ask, 3, 1)).into(t, http.StatusOK, &got)
			require.Equal(t, "SUCCEEDED", got.Data.Status, "%+v", got)
			require.JSONEq(t, `{"sum":5}`, string(got.Data.Result))
			require.Equal(t, 0, got.Data.Retry.Count, "a service that asks to wait costs no attempt")
			c.json(http.MethodPost, applyPath, fmt.Sprintf(ask, 3, 1)).into(t, http.StatusOK, &twice)
			require.Equal(t, got, twice)
			c.json(http.MethodPost, applyPath, fmt.Sprintf(ask, 4, 1)).refused(t, http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED")
			c.json(http.MethodPost, applyPath, `{"workflowId":"sum","chatId":"1","payload":{"a":2}}`).refused(t, http.StatusUnprocessableEntity, "INVALID_FIELD")

			held := make(chan string)
			s.mu.Lock()
			s.hold = held
			s.mu.Unlock()
			var waits applied
			c.json(http.MethodPost, applyPath, `{"workflowId":"sum","chatId":"1","payload":{"a":1,"b":1},"waitForResult":false}`).into(t, http.StatusAccepted, &waits)
			require.Equal(t, waits.Data.TaskID, <-held)
			p.kill()
			s.mu.Lock()
			s.hold = nil
			s.mu.Unlock()
			p = start(t, "dev", env, args...)
			c = newClient(t, p.printed(`ready (http://\S+)`))
			c.reaches(waits.Data.TaskID, "SUCCEEDED")
			c.get("/api/workflows/tasks/"+waits.Data.TaskID).into(t, http.StatusOK, &got)
			require.JSONEq(t, `{"sum":2}`, string(got.Data.Result))
			s.mu.Lock()
			require.Equal(t, map[string]int{twice.Data.TaskID: 2, waits.Data.TaskID: 2}, s.asked)
			s.mu.Unlock()
		})
	}
}

// What is at an address of an allowed network is taken in and found; the same address is forbidden without it.
func TestAnAddressIsFetchedAndFound(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><title>On ambergris</title><p>Ambergris floats.</p></html>")
	}))
	defer site.Close()
	ask := `{"workflowId":"ingest.url","chatId":"1","userText":"` + site.URL + `/ambergris","waitTimeoutSeconds":60}`
	_, c := startDev(t, "INGEST_URL_NETWORKS=127.0.0.0/8")
	var got applied
	c.json(http.MethodPost, applyPath, ask).into(t, http.StatusOK, &got)
	require.Equal(t, "SUCCEEDED", got.Data.Status, "%+v", got)
	var taken struct{ TaskID, DocumentID string }
	require.NoError(t, json.Unmarshal(got.Data.Result, &taken))
	c.reaches(taken.TaskID, "SUCCEEDED")
	require.Equal(t, taken.DocumentID, c.search("ambergris", "", 1)[0].DocumentID)

	_, c = startDev(t)
	c.json(http.MethodPost, applyPath, ask).into(t, http.StatusOK, &got)
	require.Equal(t, []any{"DEAD", "URL_FORBIDDEN"}, []any{got.Data.Status, got.Data.Error.Code})
}
