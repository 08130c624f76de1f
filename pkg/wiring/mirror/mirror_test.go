package mirror

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/telemetry"
)

// Without its servers the body lives, is not ready and says why, without the password; it ends when it is told to.
func TestItLivesWithoutItsServers(t *testing.T) {
	t.Setenv("MYSQL_DSN", "u:p@tcp(127.0.0.1:1)/db")
	t.Setenv("RABBITMQ_URL", "amqp://user:s3cr3t@127.0.0.1:1/")
	s, err := process.Load[Settings]()
	require.NoError(t, err)
	env := &process.Env{
		Name: "test", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: io.Discard,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, env, &s) }()
	require.Eventually(t, func() bool {
		return slices.Equal(env.Ready.Check(ctx).Missing, []string{"database", "rabbitmq", "schema"})
	}, time.Minute, 20*time.Millisecond, "readiness names what is missing")
	cancel()
	require.NoError(t, <-done)
}

func TestSettingsNameWhatIsWrong(t *testing.T) {
	_, err := process.Load[Settings]()
	require.ErrorContains(t, err, "MYSQL_DSN")
	require.ErrorContains(t, err, "RABBITMQ_URL: is not set")
	for name, value := range map[string]string{
		"RABBITMQ_URL": "http://user:s3cr3t@host", "RABBITMQ_QUEUE_OVERFLOW": "drop-head", "RABBITMQ_PREFETCH": "0", "RABBITMQ_PUBLISH_RETRIES": "0",
		"RABBITMQ_QUEUE_MAX_LENGTH": "1000", "RABBITMQ_EXCHANGE": "amq.topic", "RABBITMQ_PUBLISH_TIMEOUT_MS": "soon",
		"RABBITMQ_METRICS_URLS": "http://host:15692, amqp://user:s3cr3t@host",
		"RABBITMQ_AUDIT_STREAM": "amq.audit", "RABBITMQ_AUDIT_DAYS": "0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DATABASE_URL", "mysql://u:p@127.0.0.1:1/db")
			t.Setenv("RABBITMQ_URL", "amqp://127.0.0.1")
			t.Setenv(name, value)
			_, err := process.Load[Settings]()
			require.ErrorContains(t, err, name)
			require.NotContains(t, err.Error(), "s3cr3t")
		})
	}
}

// No way to print the settings, and no line of this process, tells a password of the exporters.
func TestPasswordsOfExportersAreHidden(t *testing.T) {
	t.Setenv("DATABASE_URL", "mysql://u:p@127.0.0.1:1/db")
	t.Setenv("RABBITMQ_URL", "amqp://127.0.0.1")
	t.Setenv("RABBITMQ_METRICS_URLS", "http://user:first-s3cr3t@one:15692, http://user:second-s3cr3t@two:15692")
	s, err := process.Load[Settings]()
	require.NoError(t, err)
	require.Equal(t, []string{"http://user:first-s3cr3t@one:15692", "http://user:second-s3cr3t@two:15692"}, s.config().MetricsURLs)
	require.NotContains(t, s.Exporters.URLs.String(), "s3cr3t")
	require.NotContains(t, telemetry.Redact("refuses first-s3cr3t and second-s3cr3t"), "s3cr3t")
}
