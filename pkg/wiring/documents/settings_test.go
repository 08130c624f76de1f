package documents

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/vector/qdrant"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/queue"
)

func TestPolicyOfSettings(t *testing.T) {
	t.Parallel()
	tasks := Tasks{BaseMS: 1000, MaxMS: 4000, LeaseMS: 30_000, MaxCrashes: 3, SlackMS: 2000, Jitter: "off"}
	p := tasks.Policy(true)
	require.NoError(t, p.Validate())
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second},
		[]time.Duration{p.Backoff(1), p.Backoff(2), p.Backoff(3), p.Backoff(99)})
	require.True(t, p.DLQ)
	tasks.Jitter = "on"
	p = tasks.Policy(false)
	for range 1000 {
		wait := p.Backoff(3)
		require.LessOrEqual(t, wait, 4*time.Second)
		require.Greater(t, wait, 2*time.Second, "at most a half is taken away")
	}
	require.False(t, p.DLQ)
}

func TestDeadLettersAreOwedWhereRedisKeepsThem(t *testing.T) {
	t.Parallel()
	s := Shared{Queue: queue.Settings{Kind: queue.Redis, DLQKey: "dlq"}}
	require.True(t, s.Policy().DLQ)
	s.Queue.Kind = queue.Kafka
	require.False(t, s.Policy().DLQ)
}

// pgvector lies where PGVECTOR_URL says, else in the installation's own Postgres.
func TestPGVectorLiesInTheDatabase(t *testing.T) {
	t.Parallel()
	v := Vectors{Kind: "pgvector"}
	on := func(address string) database.Settings {
		return database.Settings{DatabaseURL: process.NewDSN(address), MySQLDSN: process.NewDSN("u:p@tcp(h)/m")}
	}
	require.Equal(t, "postgres://h/main", v.In(on("postgres://h/main")).Postgres.Reveal())
	require.Equal(t, "postgresql://h/main", v.In(on("postgresql://h/main")).Postgres.Reveal())
	for _, other := range []string{"mysql://h/main", "sqlite:x.db", ""} {
		require.ErrorContains(t, v.In(on(other)).Validate(), "PGVECTOR_URL: is not set", other)
	}
	v.Postgres = process.NewDSN("postgres://h/vectors")
	require.Equal(t, "postgres://h/vectors", v.In(on("postgres://h/main")).Postgres.Reveal())
	require.NoError(t, v.In(on("mysql://h/main")).Validate())
}

func TestQdrantNeedsAnAddress(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, Vectors{Kind: "qdrant", URL: process.NewDSN("http://h:8000")}.Validate(), "QDRANT_URL")
	v := Vectors{Kind: "qdrant", Qdrant: process.NewDSN("http://h:6333"), QdrantKey: process.NewSecret("k3y"), QdrantTimeout: time.Minute}
	require.NoError(t, v.Validate())
	require.Equal(t, qdrant.Config{URL: "http://h:6333", APIKey: "k3y", Timeout: time.Minute}, v.qdrant())
}

func TestChromaNeedsAnAddress(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, Vectors{Kind: "chroma"}.Validate(), "CHROMA_BASE_URL")
	require.NoError(t, Vectors{Kind: "chroma", URL: process.NewDSN("http://h:8000")}.Validate())
	require.NoError(t, Vectors{Kind: "embedded"}.Validate())
	require.Contains(t, Embedding{}.describe(), "built-in")
	secret := Embedding{URL: process.NewDSN("https://me:hidden-login@h/v1"), Model: "m"}
	require.NotContains(t, secret.describe(), "hidden-login")
}
