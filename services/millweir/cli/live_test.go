package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/dev"
)

// firstLine keeps what a process prints and hands out its first line.
type firstLine struct {
	mu   sync.Mutex
	text bytes.Buffer
	line chan string // nil when it was handed out
}

func (f *firstLine) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text.Write(b)
	if line, _, ended := strings.Cut(f.text.String(), "\n"); ended && f.line != nil {
		f.line <- line
		f.line = nil
	}
	return len(b), nil
}

// allInOne runs `millweir dev` with more settings in this process until the test ends and returns its address.
func allInOne(t *testing.T, more map[string]string) string {
	t.Helper()
	for _, name := range []string{
		"UPLOAD_DIR", "VECTOR_DIR", "VECTOR_STORE", "AUTH_MODE", "DATABASE_URL", "MYSQL_DSN", "REDIS_URL", "CHROMA_BASE_URL", "INGEST_QUEUE",
		"KAFKA_BOOTSTRAP_SERVERS", "HTTP_ADDR", "OPERATOR_ADDR", "EMBEDDING_BASE_URL",
	} {
		t.Setenv(name, "")
	}
	for name, value := range more {
		t.Setenv(name, value)
	}
	ready := make(chan string, 1)
	ctx, stop := context.WithCancel(context.Background())
	out, logs, ended := &firstLine{line: ready}, &firstLine{}, make(chan int, 1)
	go func() {
		ended <- dev.Run(ctx, []string{"--data", t.TempDir(), "--addr=127.0.0.1:0", "--queue", "redis"}, out, logs)
	}()
	t.Cleanup(func() {
		stop()
		require.Zero(t, <-ended)
	})
	select {
	case line := <-ready:
		return strings.TrimPrefix(line, "ready ")
	case <-time.After(time.Minute):
		t.Fatalf("not ready in a minute: %s", logs.text.String())
	}
	return ""
}

// decoded reads a command's JSON.
func decoded[T any](t *testing.T, b *bundle) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(b.out.Bytes(), &v), b.out.String())
	return v
}

// TestADayAtTheCommandLine drives a real installation as a person does.
// Not parallel: it sets variables.
func TestADayAtTheCommandLine(t *testing.T) {
	b := &bundle{env: map[string]string{"MILLWEIR_SERVER": allInOne(t, nil) + "/"}}
	run := b.must(t)
	dir := t.TempDir()
	good, broken, program := filepath.Join(dir, "whales.md"), filepath.Join(dir, "broken.pdf"), filepath.Join(dir, "program.txt")
	require.NoError(t, os.WriteFile(good, []byte("# Whales\n\nA whale is a mammal that lives in the sea.\n"), 0o600))
	require.NoError(t, os.WriteFile(broken, []byte("%PDF-1.4\nnothing of the kind\n"), 0o600))
	require.NoError(t, os.WriteFile(program, []byte("MZ\x90\x00\x03\x00\x00\x00"), 0o600))

	out := run(cli.ExitOK, "submit", good, "--title", "On whales", "--wait")
	require.Contains(t, out, "SUCCEEDED")
	require.Contains(t, b.err.String(), "[########################] 100%")
	require.NotContains(t, b.err.String(), "none", "a task that waits is at no stage")
	require.Contains(t, run(cli.ExitOK, "submit", good), "SUCCEEDED (was there)")
	again := run(cli.ExitOK, "submit", good, "--force", "--wait", "-o", "json")
	accepted := decoded[[]struct {
		File string
		Task wire.AcceptedTask
	}](t, b)
	require.Len(t, accepted, 1, again)
	id := accepted[0].Task.TaskID
	require.Equal(t, "On whales", accepted[0].Task.Document.Title)

	workflow := []string{"apply", "ingest.text", "The", "narwhal", "has", "a", "tusk.", "--key", "once", "-o", "json"}
	run(cli.ExitOK, workflow...)
	applied := decoded[wire.WorkflowRun](t, b)
	require.Equal(t, taskstate.StatusSucceeded, applied.Status)
	var taken struct{ TaskID string }
	require.NoError(t, json.Unmarshal(applied.Result, &taken))
	require.Contains(t, run(cli.ExitOK, "tasks", "watch", taken.TaskID), "SUCCEEDED")
	require.Contains(t, run(cli.ExitOK, "search", "tusk"), "The narwhal has a tusk.")
	run(cli.ExitOK, workflow...)
	require.Equal(t, applied.TaskID, decoded[wire.WorkflowRun](t, b).TaskID, "twice is one task")
	require.Contains(t, run(cli.ExitOK, "apply", "no.such"), "UNKNOWN_WORKFLOW")
	run(cli.ExitBadInput, "apply", "ingest.url", "--payload", "link=x")
	require.Contains(t, b.err.String(), "payload")

	require.Contains(t, run(cli.ExitOK, "tasks", "list", "--status", "SUCCEEDED"), id)
	require.NotContains(t, run(cli.ExitOK, "tasks", "list", "--status", "SUCCEEDED", "--limit", "1", "-o", "jsonl"), "\n{")
	require.Equal(t, "TASK  STATUS  STAGE  PROGRESS  ATTEMPTS  UPDATED  FILE  ERROR\n", run(cli.ExitOK, "tasks", "list", "--status", "CANCELLED"))
	run(cli.ExitNotFound, "tasks", "list", "--kb", "none")
	run(cli.ExitBadInput, "tasks", "list", "--status", "LOST")
	require.Contains(t, b.err.String(), "INVALID_PARAMETER")
	require.Contains(t, run(cli.ExitOK, "tasks", "get", id), "100%, 1 of 1 segments")
	require.Contains(t, run(cli.ExitOK, "tasks", "watch", id), "SUCCEEDED")
	run(cli.ExitOK, "tasks", "watch", id, "-o", "json")
	require.Equal(t, id, decoded[wire.Task](t, b).TaskID)
	require.Contains(t, run(cli.ExitOK, "tasks", "explain", id), "SUCCEEDED")
	run(cli.ExitOK, "tasks", "explain", id, "-o", "json")
	require.NotEmpty(t, decoded[wire.Explanation](t, b).LastChanges)
	run(cli.ExitNotFound, "tasks", "get", "0190a6e0-0000-7000-8000-000000000001")
	run(cli.ExitBadInput, "tasks", "retry", id)
	run(cli.ExitBadInput, "tasks", "cancel", id, "--yes")
	require.Contains(t, b.err.String(), "TASK_NOT_CANCELLABLE")

	require.Contains(t, run(cli.ExitOK, "search", "mammal", "in", "the", "sea"), "On whales, Whales")
	run(cli.ExitOK, "search", "whale", "--top", "1", "-o", "json")
	require.Len(t, decoded[wire.SearchAnswer](t, b).Hits, 1)
	run(cli.ExitBadInput, "search", "whale", "--top", "99")
	require.Contains(t, b.err.String(), "topK is 99")

	run(cli.ExitBadInput, "submit", program)
	require.Contains(t, b.err.String(), "UNSUPPORTED_TYPE")
	run(cli.ExitFailed, "submit", broken, "--wait", "-o", "json")
	deadLetters(t, b, run)

	require.Equal(t, "NEW       0\nRETRYING  0\nSENT      0\nDEAD      0\noldest    0.0 s\n", run(cli.ExitOK, "outbox", "stats"))
	require.Contains(t, run(cli.ExitOK, "outbox", "list"), "EVENT")
	run(cli.ExitNotFound, "outbox", "requeue", "0190a6e0-0000-7000-8000-000000000001")
	require.Equal(t, "TOPIC  PARTITIONS  LAYOUT  STATUS  CREATED  NOTE\n", run(cli.ExitOK, "mq", "topics"))
	run(cli.ExitNotFound, "mq", "groups", "none")
	run(cli.ExitNotFound, "mq", "status", "0190a6e0-0000-7000-8000-000000000001")
}

// deadLetters goes on with the dead task of a broken file.
func deadLetters(t *testing.T, b *bundle, run func(want int, args ...string) string) {
	t.Helper()
	dead := decoded[[]struct{ Task wire.AcceptedTask }](t, b)[0].Task.TaskID
	run(cli.ExitFailed, "tasks", "watch", dead)
	require.Contains(t, b.err.String(), "is DEAD")
	written := func() (letters []wire.DeadLetter) { // after the row says DEAD, by whoever ended the task
		require.Eventually(t, func() bool {
			run(cli.ExitOK, "dlq", "list", "-o", "json")
			letters = decoded[[]wire.DeadLetter](t, b)
			return len(letters) > 0
		}, time.Minute, 20*time.Millisecond)
		require.Len(t, letters, 1)
		return letters
	}
	letters := written()
	require.EqualValues(t, dead, letters[0].TaskID)
	require.True(t, letters[0].Replayable)
	require.Contains(t, run(cli.ExitOK, "dlq", "list", "--task", dead), "DEAD")
	require.Contains(t, run(cli.ExitOK, "dlq", "get", letters[0].ID), "millweir dlq replay "+letters[0].ID)
	require.Contains(t, run(cli.ExitOK, "dlq", "replay", "--all", "--dry-run"), "1 would be replayed")
	require.Contains(t, run(cli.ExitOK, "dlq", "replay", letters[0].ID), "QUEUED")
	run(cli.ExitFailed, "tasks", "watch", dead)
	written()
	require.Contains(t, run(cli.ExitOK, "dlq", "drop", "--all", "--yes"), "1 dropped")
	require.NotContains(t, run(cli.ExitOK, "dlq", "list"), dead)
	require.Contains(t, run(cli.ExitOK, "dlq", "list", "--source", "table"), dead)
	require.Contains(t, run(cli.ExitOK, "tasks", "retry", dead), "QUEUED")
	run(cli.ExitFailed, "tasks", "watch", dead)
}
