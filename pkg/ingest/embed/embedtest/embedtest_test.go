package embedtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/ingest/embed/local"
)

func post(t *testing.T, url, body string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return reply.StatusCode, err.Error()
	}
	return reply.StatusCode, string(text)
}

func TestServerSpeaksOpenAI(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{})
	status, body := post(t, server.URL+"/v1/embeddings", `{"model":"m","input":"one text"}`, nil)
	require.Equal(t, http.StatusOK, status)
	var reply struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &reply))
	require.Len(t, reply.Data, 1)
	require.Equal(t, local.Vector("one text"), reply.Data[0].Embedding)
	status, _ = post(t, server.URL+"/v1/embeddings", `{"input":7}`, nil)
	require.Equal(t, http.StatusBadRequest, status)
}

// The log is the evidence of a drill: who asked, how often, and was it paid.
func TestEffectsAreCountedAndWritten(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	server := embedtest.Start(t, embedtest.Options{Log: &log})
	mark := map[string]string{embed.HeaderTask: "t1", embed.HeaderFence: "4", embed.HeaderBatch: "b1"}
	server.Set(embedtest.Fault{Kind: embedtest.Throttle, Times: 1, Match: func(e embedtest.Effect) bool { return e.Task == "t1" }})
	done := server.Wait(3)
	for range 2 {
		post(t, server.URL+"/embeddings", `{"input":["x","y"]}`, mark)
	}
	post(t, server.URL+"/embeddings", `{"input":["z"]}`, nil)
	<-done
	require.Equal(t, 2, server.Calls("t1", "b1"))
	require.Equal(t, 2, server.Calls("t1", ""))
	require.Equal(t, 1, server.Paid("t1", "b1"))
	require.Zero(t, server.Calls("t1", "b2"))
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 3)
	var effect embedtest.Effect
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &effect))
	require.Equal(t, http.StatusTooManyRequests, effect.Status)
	require.EqualValues(t, 4, effect.Fence)
	require.False(t, effect.Paid)
	require.Equal(t, embed.BatchHash([]string{"x", "y"}), effect.TextsHash)
}

func TestFaultsEndWithClearAndClose(t *testing.T) {
	t.Parallel()
	server, err := embedtest.NewServer(embedtest.Options{})
	require.NoError(t, err)
	server.Set(embedtest.Fault{Kind: embedtest.Fail})
	for range 3 {
		status, _ := post(t, server.URL+"/embeddings", `{"input":["x"]}`, nil)
		require.Equal(t, http.StatusInternalServerError, status)
	}
	server.Clear()
	status, _ := post(t, server.URL+"/embeddings", `{"input":["x"]}`, nil)
	require.Equal(t, http.StatusOK, status)
	server.Set(embedtest.Fault{Kind: embedtest.Hang})
	begun := server.Wait(5)
	left := make(chan int)
	go func() {
		status, _ := post(t, server.URL+"/embeddings", `{"input":["x"]}`, nil)
		left <- status
	}()
	<-begun
	server.Close()
	require.Zero(t, <-left)
}

func TestFake(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fake := &embedtest.Fake{Size: 2, Before: func(_ context.Context, n int, _ []string) error {
		if n == 2 {
			return broken
		}
		return nil
	}}
	ctx := embed.WithCall(t.Context(), embed.Call{TaskID: "t", Fence: 1, Batch: "b"})
	vectors, err := fake.Embed(ctx, []string{"a", "b"})
	require.NoError(t, err)
	require.Equal(t, local.Vector("b"), vectors[1])
	_, err = fake.Embed(ctx, []string{"a"})
	require.ErrorIs(t, err, broken)
	effects := fake.Effects()
	require.Len(t, effects, 2)
	require.True(t, effects[0].Paid)
	require.False(t, effects[1].Paid)
	require.Equal(t, "t", effects[1].Task)
	require.Equal(t, 2, fake.BatchSize())
	require.Equal(t, local.Dim, fake.Model().Dim)
}
