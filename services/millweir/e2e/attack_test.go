package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

// A37: whoever can write to the stream can make nobody do or see what is not his: the row decides on user and file,
// what cannot be read goes to the dead letters as it is, and the workers go on.
func TestA37(t *testing.T) {
	t.Parallel()
	ctx := context.WithoutCancel(t.Context())
	database := "DATABASE_URL=" + labserver.PostgresDatabase(t)
	migrate(t, database)
	redis := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	env := []string{
		database, "REDIS_URL=" + redis.URL(""), "VECTOR_STORE=chroma", "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "UPLOAD_DIR=" + t.TempDir(), "HTTP_ADDR=127.0.0.1:0",
		"INGEST_REDIS_RECLAIM_IDLE_MS=5000", // what a read was given after it had given up is put in order after that time
	}
	keyOf := func(user string) string { return newKey(t, database, "--user", user) }
	api := start(t, "ingest-api", env)
	ada := newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`)).as(keyOf("ada"))
	bob := ada.as(keyOf("bob"))
	hers, his := ada.accepted("a.txt", prose("amber", 2)), bob.accepted("b.txt", prose("basalt", 2))

	add := func(fields ...string) {
		answer, err := redis.RedisCommand(ctx, append([]string{"XADD", "ingest:tasks", "*"}, fields...)...)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(answer, "$"), answer)
	}
	poison := [][]string{
		{"taskId", hers.TaskID, "userId", "bob", "documentId", his.DocumentID, "filePath", "../../../../etc/passwd", "schemaVersion", "1"},
		{"taskId", his.TaskID, "userId", "ada", "filePath", "/etc/passwd", "type", "operator", "status", "SUCCEEDED"},
		{"taskId", "0190a6e0-0000-7000-8000-999999999999", "userId", "bob"},
		{"taskId", strings.Repeat("x", 50<<20)},
		{"taskId", hers.TaskID, "payload", `{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`},
		{"taskId", hers.TaskID, "payload", strings.Repeat("y", 50<<20)},
		{"taskId", hers.TaskID, "schemaVersion", "minus one", "retry", "7", "createdAt", "yesterday"},
		{"taskId", "", "userId", ""}, {"nothing", "here"}, {"taskId", "' OR 1=1 --"}, {"taskId", "\xff\xfe\x00"},
	}
	for _, fields := range poison {
		add(fields...)
	}
	worker := start(t, "stream-worker", append(env, "GOMEMLIMIT=768MiB")) // as a container of 1 GiB has it; without it the peak depends on when it collects
	require.Equal(t, "SUCCEEDED", ada.ended(hers.TaskID).Status)
	require.Equal(t, "SUCCEEDED", bob.ended(his.TaskID).Status)
	after := ada.accepted("after.txt", prose("coral", 2))
	require.Equal(t, "SUCCEEDED", ada.ended(after.TaskID).Status, "the worker lives")
	eventually(t, "nothing stays pending", func() bool {
		answer, err := redis.RedisCommand(ctx, "XPENDING", "ingest:tasks", "ingest-workers", "-", "+", "100")
		return err == nil && answer == "*0"
	})
	for _, who := range []*client{ada, bob} {
		for _, h := range who.search("root passwd basalt amber coral", "", 50) {
			require.NotContains(t, h.Text, "root:x:")
			a := map[bool]*client{true: bob, false: ada}[who == ada].get("/api/knowledge/documents/" + h.DocumentID)
			require.Equal(t, http.StatusNotFound, a.status, "what one finds is not the other's")
		}
	}
	require.Equal(t, http.StatusNotFound, bob.get("/api/knowledge/tasks/"+hers.TaskID).status)
	length, err := redis.RedisCommand(ctx, "XLEN", "ingest:tasks:dlq")
	require.NoError(t, err)
	require.NotEqual(t, ":0", length, "what cannot be read was kept")
	require.Less(t, worker.peakKB(), 1<<20, fmt.Sprintf("KiB with %d poisoned entries", len(poison)))
}
