package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

var kafkaTopics atomic.Int64

// onKafka are the settings of the Kafka road, with topics of the test's own; init makes them.
func onKafka(t *testing.T, bootstrap string) (env []string, init func()) {
	t.Helper()
	topic := fmt.Sprintf("e2e-%s-%d", strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-"), kafkaTopics.Add(1))
	env = []string{"INGEST_QUEUE=kafka", "KAFKA_BOOTSTRAP_SERVERS=" + bootstrap, "INGEST_KAFKA_TOPIC=" + topic, "INGEST_KAFKA_GROUP=" + topic}
	return env, func() {
		code, out := run(t, "millweir", env, "kafka", "init", "--partitions", "3")
		require.Equal(t, 0, code, out)
		require.Regexp(t, topic+`\s+made\s+3\s+1\s+LogAppendTime`, out)
		require.Regexp(t, topic+`-dlq\s+made\s+1\s+1\s+LogAppendTime`, out)
	}
}

// kafkaFleet starts the separate services of the Kafka road and answers a client of the gateway.
func kafkaFleet(t *testing.T, env []string, consumers int) *client {
	t.Helper()
	env = append([]string{"AUTH_MODE=none", "HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR=" + filepath.Join(t.TempDir(), "uploads")}, env...)
	api := start(t, "ingest-api", env)
	start(t, "outbox-relay", env)
	for range consumers {
		start(t, "kafka-consumer", env)
	}
	start(t, "reclaimer", env)
	return newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`))
}

func TestKafkaRoadOnMariaDB(t *testing.T) {
	t.Parallel()
	env, init := onKafka(t, labserver.Kafka(t).URL(""))
	init()
	env = append(env, "MYSQL_DSN="+labserver.MySQLDatabase(t), "CHROMA_BASE_URL="+labserver.Chroma(t).URL(""))
	migrate(t, env...)
	requireWorks(t, kafkaFleet(t, env, 2))
}

func TestKafkaRoadOnPostgres(t *testing.T) {
	t.Parallel()
	env, init := onKafka(t, labserver.Kafka(t).URL(""))
	init()
	env = append(env, "DATABASE_URL="+labserver.PostgresDatabase(t), "CHROMA_BASE_URL="+labserver.Chroma(t).URL(""))
	migrate(t, env...)
	requireWorks(t, kafkaFleet(t, env, 2))
}

// Contract §7: the broker is away until events have died of its absence; the task stays QUEUED and succeeds once it answers.
func TestEventsThatDiedOfTheBrokersAbsenceAreRevived(t *testing.T) {
	t.Parallel()
	ctx := context.WithoutCancel(t.Context())
	kafka := labserver.Private(t, labserver.KindKafka, labserver.Options{})
	env, init := onKafka(t, kafka.URL(""))
	init()
	require.NoError(t, kafka.Stop(ctx))
	env = append(env, "INGEST_KAFKA_MAX_ATTEMPTS=2", "INGEST_KAFKA_RETRY_BASE_BACKOFF_MS=100")
	dev := start(t, "dev", env, "--data", t.TempDir(), "--addr", "127.0.0.1:0")
	c := newClient(t, dev.printed(`ready (http://\S+)`))
	v := c.accepted("a.txt", prose("basalt", 2))
	dead := regexp.MustCompile(`outbox_publish_total\{result="dead"\} [1-9]`)
	eventually(t, "its event is dead", func() bool {
		return dead.Match(c.get("/metrics").body)
	})
	require.Equal(t, "QUEUED", c.task(v.TaskID).Status)
	said := string(c.get("/api/knowledge/tasks/" + v.TaskID + "/explain").body)
	require.Contains(t, said, "could not be sent after 2 failed attempts (BROKER_UNAVAILABLE)")
	require.Contains(t, said, `"cause":"BROKER_UNAVAILABLE"`)
	require.NoError(t, kafka.Restart(ctx))
	require.Equal(t, "SUCCEEDED", c.ended(v.TaskID).Status)
}

// Everything in one process, Kafka too; a task that moved to the other road is not lost (design D18).
func TestDevOnEitherRoad(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for i, queue := range []string{"kafka", "redis", "kafka"} {
		p := start(t, "dev", nil, "--queue", queue, "--data", data, "--addr", "127.0.0.1:0")
		c := newClient(t, p.printed(`ready (http://\S+)`))
		v := c.ended(c.accepted("a.txt", prose(fmt.Sprintf("%s%d", queue, i), 2)).TaskID)
		require.Equal(t, "SUCCEEDED", v.Status)
		c.ready()
		p.stop()
	}
}
