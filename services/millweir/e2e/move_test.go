package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
)

// The operator changes the embedding model, three times: bases go on with the one that they were made with, as long as it is set, and a
// reindex moves them to the new one (design D26).
func TestTheEmbeddingModelIsChanged(t *testing.T) {
	t.Parallel()
	for name, servers := range map[string]func(t *testing.T) []string{
		"all in one": nil,
		"MariaDB and Chroma": func(t *testing.T) []string {
			t.Helper()
			return []string{"MYSQL_DSN=" + labserver.MySQLDatabase(t), "REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL("")}
		},
		"pgvector": func(t *testing.T) []string {
			t.Helper()
			return []string{"DATABASE_URL=" + labserver.PGVectorDatabase(t), "VECTOR_STORE=pgvector", "REDIS_URL=" + labserver.RedisURL(t)}
		},
		"Qdrant": func(t *testing.T) []string {
			t.Helper()
			return []string{
				"MYSQL_DSN=" + labserver.MySQLDatabase(t), "REDIS_URL=" + labserver.RedisURL(t),
				"VECTOR_STORE=qdrant", "QDRANT_URL=" + labserver.Qdrant(t).URL(""),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			var env []string
			if servers != nil {
				env = append(servers(t), "AUTH_MODE=none", "HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR="+filepath.Join(folder, "uploads"))
				migrate(t, env...)
			}
			var running []*program
			restart := func(models ...string) *client {
				for _, p := range running {
					p.stop()
				}
				with := append(append([]string{}, env...), models...)
				if servers == nil {
					running = []*program{start(t, "dev", with, "--data", folder, "--addr", "127.0.0.1:0")}
					return newClient(t, running[0].printed(`ready (http://\S+)`))
				}
				running = []*program{start(t, "ingest-api", with), start(t, "stream-worker", with), start(t, "reclaimer", with)}
				return newClient(t, "http://"+running[0].printed(`"gateway: listening".*?"addr":"([^"]+)"`))
			}
			service := func(prefix, model string, s *embedtest.Server) []string {
				return []string{prefix + "BASE_URL=" + s.URL, prefix + "MODEL=" + model, prefix + "API=openai"}
			}
			one, two, three := embedtest.Start(t, embedtest.Options{}), embedtest.Start(t, embedtest.Options{}), embedtest.Start(t, embedtest.Options{})
			c, n := restart(), 0
			upload := func() {
				t.Helper()
				n++
				c.ingested(fmt.Sprintf("stones-%d.txt", n), prose(fmt.Sprintf("opal %d", n), 3))
			}
			nearest := func() {
				t.Helper()
				var v struct {
					Hits    []hit `json:"hits"`
					Partial bool  `json:"partial"`
				}
				c.json(http.MethodPost, "/api/knowledge/search", `{"query":"opal","mode":"vector","topK":50}`).into(t, http.StatusOK, &v)
				require.False(t, v.Partial)
				found := map[string]bool{}
				for _, h := range v.Hits {
					found[h.DocumentID] = true
				}
				require.Len(t, found, n)
			}
			moved := func() {
				t.Helper()
				var run applied
				c.json(http.MethodPost, bases+"/default/reindex", `{"dryRun":true}`).into(t, http.StatusOK, &run)
				require.Contains(t, string(run.Data.Result), fmt.Sprintf(`"outdated":%d`, n))
				c.json(http.MethodPost, bases+"/default/reindex?waitSeconds=60", `{}`).into(t, http.StatusOK, &run)
				require.Equal(t, "SUCCEEDED", run.Data.Status, "%+v", run.Data.Error)
				require.Contains(t, string(run.Data.Result), fmt.Sprintf(`"moved":%d`, n))
				nearest()
			}
			upload()
			upload()
			nearest()

			c = restart(service("EMBEDDING_", "one", one)...)
			nearest()
			upload()
			require.Empty(t, one.Effects(), "the built-in model goes on")
			moved()
			require.NotEmpty(t, one.Effects())

			c = restart(append(service("EMBEDDING_", "two", two), service("EMBEDDING_PREVIOUS_", "one", one)...)...)
			before := len(one.Effects())
			nearest()
			upload()
			require.Greater(t, len(one.Effects()), before+1, "the model before goes on: a query and a document")
			require.Empty(t, two.Effects())
			moved()

			c = restart(service("EMBEDDING_", "three", three)...)
			c.json(http.MethodPost, "/api/knowledge/search", `{"query":"opal","mode":"vector"}`).refused(t, http.StatusConflict, "DIMENSION_MISMATCH")
			require.NotEmpty(t, c.search("opal", "", 3), "by its words")
			moved()
			before = len(three.Effects())
			upload()
			nearest()
			require.Greater(t, len(three.Effects()), before)
			if servers != nil {
				code, out := run(t, "millweir", append(env, service("EMBEDDING_", "three", three)...), "fsck", "--deep")
				require.Zero(t, code, out)
			}
		})
	}
}
