package e2e

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
)

// The way of an operator: tasks die, are listed, replayed by the command line, and succeed; a second replay is refused.
func TestDeadLettersAreReplayed(t *testing.T) {
	t.Parallel()
	broken := embedtest.Start(t, embedtest.Options{})
	broken.Set(embedtest.Fault{Kind: embedtest.Refuse})
	stream := "e2e:dlq:" + rand.Text()
	_, c := startDev(t, "MYSQL_DSN="+labserver.MySQLDatabase(t), "REDIS_URL="+labserver.RedisURL(t), "INGEST_STREAM_KEY="+stream,
		"INGEST_REDIS_DLQ_STREAM_KEY="+stream+":dlq", "EMBEDDING_BASE_URL="+broken.URL, "EMBEDDING_MODEL=test", "EMBEDDING_API=openai",
		"INGEST_REDIS_MAX_ATTEMPTS=1")
	env := []string{"MILLWEIR_SERVER=" + c.url}
	var ids []string
	for _, word := range []string{"one", "two", "three", "four"} {
		v := c.ended(c.accepted(word+".txt", prose(word, 1)).TaskID)
		require.Equal(t, "DEAD", v.Status)
		ids = append(ids, v.TaskID)
	}
	type deadLetter struct {
		ID, TaskID, LastError string
		Replayable            bool
	}
	deadLetters := func() (all []deadLetter) {
		code, out := run(t, "millweir", env, "dlq", "list", "-o", "json")
		require.Equal(t, 0, code, out)
		// Only the first value: a program that was built to measure coverage adds a warning on the error output.
		require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&all), out)
		return all
	}
	// A dead letter is written after its death is told, at least once, and not in the order of the deaths.
	those := func() []string {
		var all []string
		for _, l := range deadLetters() {
			all = append(all, l.TaskID)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	eventually(t, "every death has its dead letter", func() bool { return len(those()) == 4 })
	all := deadLetters()
	newest := all[slices.IndexFunc(all, func(l deadLetter) bool { return l.TaskID == ids[3] })]
	require.True(t, newest.Replayable)
	require.Contains(t, newest.LastError, "embed batch 1/1")

	broken.Clear()
	code, out := run(t, "millweir", env, "dlq", "replay", newest.ID)
	require.Equal(t, 0, code, out)
	require.Equal(t, "SUCCEEDED", c.ended(ids[3]).Status)
	code, out = run(t, "millweir", env, "dlq", "replay", newest.ID)
	require.Equal(t, 4, code, out) // its entry is gone
	c.do(http.MethodPost, "/internal/dlq/letters/"+ids[3]+"-1/replay", nil).refused(t, http.StatusConflict, "TASK_NOT_REPLAYABLE")

	// Of the rest one is dropped, one withdrawn by its document, one left.
	code, out = run(t, "millweir", env, "dlq", "drop", "--all", "--task", ids[0])
	require.Equal(t, 10, code, out)
	code, out = run(t, "millweir", env, "dlq", "drop", "--all", "--task", ids[0], "--yes")
	require.Equal(t, 0, code, out)
	c.do(http.MethodDelete, documents+"/"+c.task(ids[1]).DocumentID, nil).into(t, http.StatusNoContent, nil)
	code, out = run(t, "millweir", env, "dlq", "replay", "--all", "--yes")
	require.Equal(t, 0, code, out)
	require.Regexp(t, `\b1 replayed, .*\d DOCUMENT_DELETED`, out)
	require.Equal(t, "SUCCEEDED", c.ended(ids[2]).Status)
	require.Equal(t, "DEAD", c.task(ids[0]).Status, "a dropped letter leaves its task")
	require.Equal(t, []string{ids[1]}, those(), "of the deleted document")
}
