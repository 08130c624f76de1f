package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

// operation is a bulk operation.
type operation struct {
	OperationID, Status   string
	Matched, Done, Failed int
	Skipped               map[string]int
}

// Documents that cannot be read are put back by the group of their failure, and the process that does it is killed half way: each is put
// back once.
func TestABulkOperationSurvivesAKill(t *testing.T) {
	t.Parallel()
	const documents = 450 // three pages of an operation
	for name, servers := range map[string]func(t *testing.T) []string{
		"all in one": nil,
		"MariaDB": func(t *testing.T) []string {
			t.Helper()
			return []string{"MYSQL_DSN=" + labserver.MySQLDatabase(t), "REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL("")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			env := []string{"INGEST_LEASE_MS=5000", "INGEST_SWEEP_INTERVAL_MS=200"} // a loaded machine cannot renew a lease within a second
			if servers != nil {
				env = append(append(env, servers(t)...), "AUTH_MODE=none", "HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR="+filepath.Join(folder, "uploads"))
				migrate(t, env...)
			}
			var worker *program
			var c *client
			launch := func() {
				if servers == nil {
					worker = start(t, "dev", env, "--data", folder, "--addr", "127.0.0.1:0")
					c = newClient(t, worker.printed(`ready (http://\S+)`))
					return
				}
				worker = start(t, "stream-worker", env)
				if c == nil {
					c = newClient(t, "http://"+start(t, "ingest-api", env).printed(`"gateway: listening".*?"addr":"([^"]+)"`))
					start(t, "reclaimer", env)
				}
			}
			launch()
			var ids []string
			for i := range documents {
				ids = append(ids, c.accepted(fmt.Sprintf("%d.pdf", i), fmt.Appendf(nil, "%%PDF-1.7\nthis is no page %d\n", i)).TaskID)
			}
			var groups page[struct {
				GroupID, ErrorCode string
				Failures, Tasks    int
			}]
			failures := func(n int) bool {
				c.get("/api/knowledge/failures").into(t, http.StatusOK, &groups)
				return len(groups.Items) == 1 && groups.Items[0].Tasks == documents && groups.Items[0].Failures == n
			}
			eventually(t, "every document is DEAD for one reason", func() bool { return failures(documents) })
			require.Equal(t, "CORRUPT", groups.Items[0].ErrorCode)

			var op operation
			filter := "group:" + groups.Items[0].GroupID + " status:DEAD"
			c.json(http.MethodPost, "/api/knowledge/bulk", `{"action":"replay","filter":"`+filter+`","ratePerSecond":150,"reason":"try again"}`).into(t, http.StatusAccepted, &op)
			look := func() operation {
				c.get("/api/knowledge/bulk/"+op.OperationID).into(t, http.StatusOK, &op)
				return op
			}
			eventually(t, "a page is done", func() bool { return look().Done > 0 })
			worker.kill()
			if servers != nil {
				require.Less(t, look().Done, documents, "it was killed half way")
			}
			launch()
			eventually(t, "the operation ends", func() bool { return look().Status == "SUCCEEDED" })
			require.Equal(t, operation{OperationID: op.OperationID, Status: "SUCCEEDED", Matched: documents, Done: documents, Skipped: map[string]int{}}, op)
			eventually(t, "every document is DEAD again", func() bool { return failures(2 * documents) })
			for _, id := range ids {
				var log page[struct{ Reason, Message string }]
				c.get("/api/knowledge/tasks/"+id+"/transitions").into(t, http.StatusOK, &log)
				replays := 0
				for _, change := range log.Items {
					if change.Reason == "REPLAYED" {
						replays++
						require.Contains(t, change.Message, "bulk operation "+op.OperationID+": try again")
					}
				}
				require.Equal(t, 1, replays, id)
			}
			var left page[task]
			c.get("/api/knowledge/tasks?limit=1&filter="+url.QueryEscape(`status:QUEUED,RETRYING,RUNNING`)).into(t, http.StatusOK, &left)
			require.Empty(t, left.Items)
		})
	}
}
