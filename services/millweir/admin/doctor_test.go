package admin

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/services/millweir/cli"
)

// Not parallel: it sets variables. The server is not there; the rest is looked at all the same.
func TestDoctorFromTheInside(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("MYSQL_DSN", "")
	t.Setenv("REDIS_URL", "")
	t.Setenv("VECTOR_STORE", "embedded")
	t.Setenv("UPLOAD_DIR", filepath.Join(dir, "uploads"))
	t.Setenv("VECTOR_DIR", filepath.Join(dir, "vectors"))
	t.Setenv("DATABASE_URL", "sqlite:"+filepath.Join(dir, "a.db"))
	t.Setenv("INGEST_MAX_BACKLOGS", "7")
	examine := func() string {
		code, out, _ := run(t, "doctor", "--server", "http://127.0.0.1:1")
		require.Equal(t, cli.ExitFailed, code, "there is no server")
		return out
	}
	out := examine()
	require.Regexp(t, `warn +settings +INGEST_MAX_BACKLOGS is not a setting: did you mean INGEST_MAX_BACKLOG\?`, out)
	require.Regexp(t, `FAIL +migrations +\d+ of \d+ are missing +millweir migrate up`, out)
	code, _, errs := run(t, "migrate", "up")
	require.Zero(t, code, errs)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "uploads"), 0o700))
	out = examine()
	require.Regexp(t, `ok +migrations +all \d+ are applied \(sqlite\)`, out)
	require.Regexp(t, `ok +here: database +works`, out)
	require.Regexp(t, `warn +upload folder +it has no marker yet`, out)
	require.Regexp(t, `ok +durability`, out)
	require.Regexp(t, `ok +server version +SQLite 3\.\d+`, out)
	code, _, errs = run(t, "timeline", "mark", "--yes")
	require.Zero(t, code, errs)
	require.Regexp(t, `ok +upload folder +it is this database's`, examine())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "uploads", ".timeline"), []byte("77\n"), 0o600))
	require.Regexp(t, `FAIL +upload folder +its marker says timeline 77`, examine())
	t.Setenv("INGEST_QUEUE", "pigeons")
	require.Regexp(t, `FAIL +settings +.*INGEST_QUEUE`, examine())
	t.Setenv("INGEST_QUEUE", "redis")
	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/x?password=hunter2")
	out = examine()
	require.Regexp(t, `FAIL +(database|here: database|migrations)`, out)
	require.NotContains(t, out, "hunter2")
}

// Not parallel: it sets variables. Each server's own word is told, and judged where a floor is known.
func TestDoctorTellsWhichServersTheseAre(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("VECTOR_STORE", "embedded")
	t.Setenv("UPLOAD_DIR", filepath.Join(dir, "uploads"))
	t.Setenv("VECTOR_DIR", filepath.Join(dir, "vectors"))
	t.Setenv("REDIS_URL", labserver.RedisURL(t))
	for product, set := range map[string]func(){
		"(MariaDB|MySQL)": func() { t.Setenv("DATABASE_URL", ""); t.Setenv("MYSQL_DSN", labserver.MySQLDatabase(t)) },
		"Postgres":        func() { t.Setenv("MYSQL_DSN", ""); t.Setenv("DATABASE_URL", labserver.PostgresDatabase(t)) },
	} {
		set()
		_, out, _ := run(t, "doctor", "--server", "http://127.0.0.1:1")
		require.Regexp(t, `ok +server version +`+product+` \d+\.\d+`, out)
		require.Regexp(t, `ok +server version +Redis \d+\.\d+`, out)
	}
}

// Not parallel: it sets variables. RabbitMQ tells its version when a connection is made; Chroma's Rust server tells none, its Python server did.
func TestDoctorTellsTheVersionsOfRabbitMQAndChroma(t *testing.T) {
	installed(t, map[string]string{
		"MYSQL_DSN": "", "DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "REDIS_URL": "", "VECTOR_STORE": "chroma",
		"UPLOAD_DIR": t.TempDir(), "EMBEDDING_BASE_URL": "", "RABBITMQ_URL": labserver.RabbitMQ(t).URL(""), "CHROMA_BASE_URL": labserver.Chroma(t).URL(""),
	})
	examine := func() string {
		_, out, _ := run(t, "doctor", "--server", "http://127.0.0.1:1")
		return out
	}
	out := examine()
	require.Regexp(t, `ok +server version +RabbitMQ \d+\.\d+`, out)
	require.Regexp(t, `ok +server version +Chroma does not tell its version`, out)
	python := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`"1.5.8"`)) }))
	defer python.Close()
	t.Setenv("CHROMA_BASE_URL", python.URL)
	t.Setenv("RABBITMQ_URL", "amqp://guest:s3cr3t@127.0.0.1:1/")
	out = examine()
	require.Regexp(t, `FAIL +server version +Chroma 1\.5\.8 is too old +Upgrade it to 1\.5\.9 or later`, out)
	require.Regexp(t, `FAIL +server version +connect to RabbitMQ at 127\.0\.0\.1:1`, out)
	require.NotContains(t, out, "s3cr3t")
}

// Not parallel: it sets variables.
func TestDoctorTellsTheVersionOfQdrant(t *testing.T) {
	installed(t, map[string]string{
		"MYSQL_DSN": "", "DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "a.db"), "REDIS_URL": "", "VECTOR_STORE": "qdrant",
		"UPLOAD_DIR": t.TempDir(), "EMBEDDING_BASE_URL": "", "RABBITMQ_URL": "", "QDRANT_URL": labserver.Qdrant(t).URL(""),
	})
	_, out, _ := run(t, "doctor", "--server", "http://127.0.0.1:1")
	require.Regexp(t, `ok +server version +Qdrant 1\.20\.0`, out)
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"title":"qdrant - vector search engine","version":"1.9.7"}`))
	}))
	defer old.Close()
	t.Setenv("QDRANT_URL", old.URL)
	_, out, _ = run(t, "doctor", "--server", "http://127.0.0.1:1")
	require.Regexp(t, `FAIL +server version +Qdrant 1\.9\.7 is too old +Upgrade it to 1\.10 or later`, out)
}
