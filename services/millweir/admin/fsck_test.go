package admin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	vectorstore "github.com/millweir/millweir/pkg/ingest/vector/embedded"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/services/millweir/cli"
)

// Not parallel: it sets variables.
func TestFsckFindsAndMends(t *testing.T) {
	dir := t.TempDir()
	url, vectors := "sqlite:"+filepath.Join(dir, "a.db"), filepath.Join(dir, "vectors")
	installed(t, map[string]string{
		"MYSQL_DSN": "", "DATABASE_URL": url, "REDIS_URL": "", "VECTOR_STORE": "embedded", "VECTOR_DIR": vectors,
		"UPLOAD_DIR": filepath.Join(dir, "uploads"), "EMBEDDING_BASE_URL": "",
	})
	code, out, errs := run(t, "fsck")
	require.Equal(t, cli.ExitOK, code, errs)
	require.Contains(t, out, "VIOLATIONS")
	for _, what := range []string{"the queue", "the files", "the vectors"} {
		require.Contains(t, errs, "not looked at: "+what)
	}
	stray(t, url, vectors)

	code, out, errs = run(t, "fsck", "--history")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, out, "which no row names")
	require.Contains(t, errs, "1 violations")
	code, out, _ = run(t, "fsck", "-o", "json")
	require.Equal(t, cli.ExitFailed, code)
	var report []struct {
		Rule       string
		Violations int
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Equal(t, "I12", report[0].Rule)

	code, _, errs = run(t, "fsck", "--repair")
	require.Equal(t, cli.ExitConfirm, code, errs)
	code, _, errs = run(t, "fsck", "--repair", "--yes")
	require.Equal(t, cli.ExitOK, code, errs)
	require.Contains(t, errs, "1 strays deleted")
	code, _, _ = run(t, "fsck")
	require.Equal(t, cli.ExitOK, code)

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "uploads"), 0o700))
	lone := filepath.Join(dir, "uploads", "00000000-0000-7000-8000-0000000000fe")
	require.NoError(t, os.WriteFile(lone, []byte("whose?"), 0o600))
	code, _, errs = run(t, "fsck", "--deep")
	require.Equal(t, cli.ExitOK, code, errs)
	require.Contains(t, errs, "1 files without a row are younger than a day")
	code, out, _ = run(t, "fsck", "--rest")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, out, "has no row")
	code, _, errs = run(t, "fsck", "--rest", "--repair", "--yes")
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, errs, "is younger than a day")
	long := time.Now().Add(-26 * time.Hour)
	require.NoError(t, os.Chtimes(lone, long, long))
	code, _, errs = run(t, "fsck", "--repair", "--yes")
	require.Equal(t, cli.ExitOK, code, errs)
	require.Contains(t, errs, "1 files without a row removed")
	require.NoFileExists(t, lone)

	code, _, _ = run(t, "fsck", "surplus")
	require.Equal(t, cli.ExitUsage, code)
	code, _, _ = run(t, "fsck", "--effects", filepath.Join(dir, "none"))
	require.Equal(t, cli.ExitBadInput, code)
	code, _, errs = run(t, "fsck", "--settings-since", "yesterday")
	require.Equal(t, cli.ExitUsage, code)
	require.Contains(t, errs, "--settings-since")
}

// Not parallel: it sets variables.
func TestFsckLooksAtKafka(t *testing.T) {
	installed(t, map[string]string{
		"MYSQL_DSN": "", "DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "REDIS_URL": "", "VECTOR_STORE": "embedded",
		"VECTOR_DIR": t.TempDir(), "UPLOAD_DIR": t.TempDir(), "EMBEDDING_BASE_URL": "", "INGEST_QUEUE": "kafka", "KAFKA_BOOTSTRAP_SERVERS": "",
		"INGEST_REDIS_DLQ_STREAM_KEY": "",
	})
	code, _, errs := run(t, "fsck")
	require.Equal(t, cli.ExitOK, code, errs)
	require.Contains(t, errs, "not looked at: the queue (KAFKA_BOOTSTRAP_SERVERS")

	broker, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(broker.Stop)
	t.Setenv("KAFKA_BOOTSTRAP_SERVERS", broker.Bootstrap())
	code, _, _ = run(t, "kafka", "init", "--partitions", "2")
	require.Equal(t, cli.ExitOK, code)
	code, out, errs := run(t, "fsck", "--history", "--rest", "-o", "json")
	require.Equal(t, cli.ExitOK, code, errs)
	require.NotContains(t, errs, "not looked at")
	var report []struct {
		Rule      string
		Judged    int
		NotJudged string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	for _, r := range report {
		switch r.Rule {
		case "I21":
			require.Equal(t, 4, r.Judged, "two words on each partition")
		case "I18":
			require.Empty(t, r.NotJudged, "the dead letters of this transport are always on")
		}
	}
}

// Not parallel: it sets variables.
func TestFsckLooksAtTheCopies(t *testing.T) {
	server := labserver.RabbitMQ(t)
	installed(t, map[string]string{
		"MYSQL_DSN": "", "DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "REDIS_URL": "", "VECTOR_STORE": "embedded",
		"VECTOR_DIR": t.TempDir(), "UPLOAD_DIR": t.TempDir(), "EMBEDDING_BASE_URL": "", "RABBITMQ_QUEUE": "fsck.copies",
	})
	for url, words := range map[string]string{"": "needs RABBITMQ_URL", server.URL(""): ""} {
		t.Setenv("RABBITMQ_URL", url)
		code, out, errs := run(t, "fsck", "--history", "-o", "json")
		require.Equal(t, cli.ExitOK, code, errs)
		var report []struct{ Rule, NotJudged string }
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		for _, r := range report {
			if r.Rule == "I22" && words == "" {
				require.Empty(t, r.NotJudged)
			} else if r.Rule == "I22" {
				require.Contains(t, r.NotJudged, words)
			}
		}
	}
	t.Setenv("RABBITMQ_URL", "amqp://guest:s3cr3t@127.0.0.1:1/")
	code, _, errs := run(t, "fsck", "--history")
	require.Equal(t, cli.ExitServer, code)
	require.Contains(t, errs, "connect to RabbitMQ")
	require.NotContains(t, errs, "s3cr3t")
}

// installed sets what the commands read, and migrates.
func installed(t *testing.T, settings map[string]string) {
	t.Helper()
	for name, value := range settings {
		t.Setenv(name, value)
	}
	code, _, _ := run(t, "migrate", "up")
	require.Equal(t, cli.ExitOK, code)
}

// stray makes a base with one vector that no row names.
func stray(t *testing.T, url, dir string) {
	t.Helper()
	store, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: url})
	require.NoError(t, err)
	m, err := store.Moment(t.Context())
	require.NoError(t, err)
	const base = "00000000-0000-7000-8000-00000000000b"
	require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO knowledge_base (id, user_id, name, live_name, dim, created_at, updated_at) VALUES (?, 'u', 'b', 'b', 2, ?, ?)`, base, m.Now, m.Now)
		return err
	}))
	require.NoError(t, store.Close())
	vectors, err := vectorstore.Open(dir, vectorstore.Options{})
	require.NoError(t, err)
	require.NoError(t, vectors.Upsert(t.Context(), base, []ingest.Vector{{ID: "stray", DocumentID: "d", Birth: "v", Values: []float32{1, 0}}}))
	require.NoError(t, vectors.Close())
}
