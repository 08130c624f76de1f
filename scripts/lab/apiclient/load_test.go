package apiclient

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/await"
)

func TestLoadRepeatsWhatBrokeOffAndRemembersWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	keys := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		keys <- r.Header.Get("Idempotency-Key")
		switch calls.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "0.01")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable) // rude
		case 3:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"taskId":"t1"}`)
		case 4:
			w.WriteHeader(http.StatusConflict)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	r := Load{Target: NewClient(server.URL), Clients: 1, Count: 3, First: 7, Bytes: 100}.Run(t.Context())
	require.Equal(t, []string{"lab-7", "lab-7", "lab-7"}, []string{<-keys, <-keys, <-keys})
	require.Len(t, r.Accepted, 1)
	require.Equal(t, "report-7.txt", r.Accepted["t1"].Name)
	require.Equal(t, []int{2, 1, 1, 1, 0}, []int{r.Busy, r.Rude, r.Conflicts, len(r.Maybe), r.Unknown})
	require.Equal(t, map[int]int{http.StatusTeapot: 1}, r.Other)
}

func TestLoadWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	target := NewClient("http://127.0.0.1:1").As("", "", func(Call) { cancel() }) // after its first request
	l := Load{Target: target, Clients: 1, Bytes: 100}
	r := l.Run(ctx)
	require.Empty(t, r.Accepted)
	require.Len(t, r.Maybe, 1)
	require.Positive(t, r.Unknown)
}

func TestTextsDiffer(t *testing.T) {
	t.Parallel()
	a, b := Text(1, 10_000), Text(2, 10_000)
	require.Equal(t, a, Text(1, 10_000))
	require.NotEqual(t, a.Body, b.Body)
	require.Contains(t, string(a.Body), a.Mark)
	require.NotContains(t, string(b.Body), a.Mark)
	require.InDelta(t, 10_000, len(a.Body), 200)
}

func TestATaskIsAwaitedInItsStatusOrItsEnd(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := []string{"QUEUED", "RUNNING", "DEAD"}[min(looks.Add(1), 3)-1]
		_, _ = io.WriteString(w, `{"taskId":"t1","status":"`+status+`","lastError":"no text"}`)
	}))
	t.Cleanup(server.Close)
	c := NewClient(server.URL)
	task, err := c.Await(t.Context(), "t1", taskstate.StatusRunning, time.Minute, time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, taskstate.StatusRunning, task.Status)
	task, err = c.Await(t.Context(), "t1", "", time.Minute, time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, taskstate.StatusDead, task.Status)
	_, err = c.Await(t.Context(), "t1", taskstate.StatusSucceeded, 0, time.Millisecond)
	require.ErrorIs(t, err, await.ErrTimeout)
	require.ErrorContains(t, err, "task t1 is DEAD: no text")
}

func TestARefusalOfAnyRequestHasItsStatusAndCode(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"code":"BUSY","message":"`+r.Method+" "+r.URL.Path+`"}`)
	}))
	t.Cleanup(server.Close)
	var said []Call
	c := NewClient(server.URL).As("anna", "", func(one Call) { said = append(said, one) })
	err := c.Do(t.Context(), http.MethodDelete, "/x")
	require.Equal(t, &StatusError{Status: http.StatusConflict, Code: "BUSY", Message: "DELETE /x", RetryAfter: 2 * time.Second}, err)
	require.Len(t, said, 1)
	require.Equal(t, []any{http.StatusConflict, "BUSY", "anna"}, []any{said[0].Status, said[0].Code, said[0].User})
	status, body, err := c.Get(t.Context(), "/y")
	require.NoError(t, err, "any status is an answer")
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, string(body), "GET /y")
}

func TestADocxHasItsPartsInOrder(t *testing.T) {
	t.Parallel()
	b, err := Docx(strings.NewReader("<w:p/>"))
	require.NoError(t, err)
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	require.Equal(t, []string{"[Content_Types].xml", "_rels/.rels", "word/document.xml"}, names)
	_, err = Docx(iotest.ErrReader(io.ErrUnexpectedEOF))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
