package apiclient

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

func TestAWatcherResumesWhereItWas(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path + " " + r.Header.Get("Last-Event-ID") + " " + r.Header.Get("Authorization")
		switch r.Header.Get("Last-Event-ID") {
		case "":
			_, _ = io.WriteString(w, ": heartbeat\n\n")
			_, _ = io.WriteString(w, "id: 7\nevent: status\ndata: {\"taskId\":\"t\",\"status\":\"QUEUED\",\"attemptCount\":2}\n\n")
		case "7":
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"TASK_NOT_FOUND"}`)
		}
	}))
	t.Cleanup(server.Close)
	c := NewClient(server.URL).As("anna", "secret", nil)
	var seen []Event
	note := func(e Event) bool { seen = append(seen, e); return true }
	over, err := c.Watch(t.Context(), "t", 0, note)
	require.NoError(t, err, "the end of a stream is no error")
	require.False(t, over)
	require.Len(t, seen, 1)
	require.True(t, seen[0].SameAs(Event{TaskID: "t", Status: taskstate.StatusQueued, AttemptCount: 2}))
	require.Equal(t, int64(7), seen[0].ID)
	over, err = c.Watch(t.Context(), "t", seen[0].ID, note)
	require.NoError(t, err)
	require.True(t, over)
	_, err = c.Watch(t.Context(), "t", 9, note)
	var refused *StatusError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "TASK_NOT_FOUND", refused.Code)
	require.Len(t, seen, 1)
	require.Equal(t, "/api/knowledge/tasks/t/events  Bearer secret", <-asked)
	require.Equal(t, "/api/knowledge/tasks/t/events 7 Bearer secret", <-asked)
}

func TestEveryRequestIsNoted(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.Method {
		case http.MethodPost:
			_, _ = io.WriteString(w, `{"taskId":"t","documentId":"d","replayed":true,"hits":[{"documentId":"d","version":3}]}`)
		case http.MethodDelete:
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"code":"NO"}`)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	var calls []Call
	c := NewClient(server.URL).As("anna", "", func(call Call) { calls = append(calls, call) })
	ctx := t.Context()
	_, err := c.Upload(ctx, Doc{Name: "a", Key: "k", Body: []byte("x")})
	require.NoError(t, err)
	require.Error(t, c.Delete(ctx, "d"))
	_, err = c.Task(ctx, "t")
	require.Error(t, err)
	_, err = c.Search(ctx, "", "q", 1)
	require.NoError(t, err)
	require.Len(t, calls, 4)
	up, gone, lost, found := calls[0], calls[1], calls[2], calls[3]
	require.Equal(t, []string{"upload", "anna", "k", "t", "d"}, []string{up.Op, up.User, up.Key, up.Task, up.Document})
	require.Len(t, up.BodyHash, 64)
	require.True(t, up.Replayed)
	require.False(t, up.Ended.Before(up.Began))
	require.Equal(t, []any{http.StatusConflict, "NO", nil}, []any{gone.Status, gone.Code, gone.Err})
	require.Zero(t, lost.Status)
	require.Error(t, lost.Err)
	require.Equal(t, int64(3), found.Hits[0].Version)
}
