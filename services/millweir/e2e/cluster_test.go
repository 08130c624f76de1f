package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
)

// Separate processes over a Redis Cluster, with one stream and with partitions on all nodes: an upload succeeds, one runs
// again after a failure, one dies, is listed and replayed, and the operator's commands see the topic.
func TestServicesOnRedisCluster(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]struct {
		partitions string
		commands   map[string]string // and what they show
	}{
		"one stream": {"1", map[string]string{
			"mq groups --stream ingest:tasks": "ingest-workers", "mq groups --stream queue:tasks": "persist-workers", "mq pending --stream ingest:tasks ingest-workers": "CONSUMER",
		}},
		"partitions": {"6", map[string]string{
			"mq topics": "ingest-tasks", "mq partitions ingest-tasks": "0 dead letters", "mq groups ingest-tasks": "ingest-workers",
			"mq owners ingest-tasks ingest-workers": "5 ", "mq pending ingest-tasks ingest-workers": "CONSUMER",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := "MYSQL_DSN=" + labserver.MySQLDatabase(t)
			migrate(t, dsn)
			embeddings := embedtest.Start(t, embedtest.Options{})
			env := []string{
				dsn, "UPLOAD_DIR=" + t.TempDir(), "REDIS_URL=" + labserver.PrivateCluster(t).URL(), "INGEST_STREAM_PARTITIONS=" + look.partitions,
				"CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "EMBEDDING_BASE_URL=" + embeddings.URL, "EMBEDDING_MODEL=test",
				"EMBEDDING_API=openai", "INGEST_REDIS_MAX_ATTEMPTS=2", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=0", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=0",
			}
			c := fleet(t, env, 2)
			v := c.ended(c.accepted("good.txt", prose("opal", 3)).TaskID)
			require.Equal(t, "SUCCEEDED", v.Status, v.LastError)
			require.Zero(t, v.AttemptCount)

			embeddings.Set(embedtest.Fault{Kind: embedtest.Refuse, Times: 1})
			v = c.ended(c.accepted("again.txt", prose("agate", 1)).TaskID)
			require.Equal(t, "SUCCEEDED", v.Status, v.LastError)
			require.Equal(t, 1, v.AttemptCount, "the one that failed")

			embeddings.Set(embedtest.Fault{Kind: embedtest.Refuse})
			dead := c.ended(c.accepted("dead.txt", prose("jasper", 1)).TaskID)
			require.Equal(t, "DEAD", dead.Status)
			server := []string{"MILLWEIR_SERVER=" + c.url}
			var deadLetters []struct {
				ID, TaskID string
				Replayable bool
			}
			eventually(t, "its dead letter", func() bool {
				code, out := run(t, "millweir", server, "dlq", "list", "--source", "redis", "-o", "json")
				require.Equal(t, 0, code, out)
				require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&deadLetters), out)
				return len(deadLetters) > 0
			})
			require.Equal(t, dead.TaskID, deadLetters[0].TaskID)
			require.True(t, deadLetters[0].Replayable)
			for command, shows := range look.commands {
				code, out := run(t, "millweir", server, strings.Fields(command)...)
				require.Equal(t, 0, code, "%s: %s", command, out)
				require.Contains(t, out, shows, command)
			}
			embeddings.Clear()
			code, out := run(t, "millweir", server, "dlq", "replay", deadLetters[0].ID)
			require.Equal(t, 0, code, out)
			require.Equal(t, "SUCCEEDED", c.ended(dead.TaskID).Status)

			var taken applied // a workflow has a stream on another node
			c.json(http.MethodPost, applyPath, `{"workflowId":"ingest.text","chatId":"1","userText":"Beryl.","waitTimeoutSeconds":60}`).into(t, http.StatusOK, &taken)
			require.Equal(t, "SUCCEEDED", taken.Data.Status, "%+v", taken)
			var document struct{ TaskID string }
			require.NoError(t, json.Unmarshal(taken.Data.Result, &document))
			require.Equal(t, "SUCCEEDED", c.ended(document.TaskID).Status)

			var stats struct {
				Counts map[string]int `json:"counts"`
			}
			c.get("/internal/tasks/stats").into(t, http.StatusOK, &stats)
			require.Equal(t, 5, stats.Counts["SUCCEEDED"])
			c.ready()
			code, out = run(t, "millweir", env, "fsck")
			require.Equal(t, 0, code, out)
		})
	}
}
