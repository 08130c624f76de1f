package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
)

var kafkaTopics atomic.Int64

// onKafka are the settings of the Kafka transport, with topics of the test's own; init makes them.
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

// kafkaFleet starts the separate services of the Kafka transport and returns a client of the gateway.
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

func TestKafkaTransportOnMariaDB(t *testing.T) {
	t.Parallel()
	env, init := onKafka(t, labserver.Kafka(t).URL(""))
	init()
	env = append(env, "MYSQL_DSN="+labserver.MySQLDatabase(t), "CHROMA_BASE_URL="+labserver.Chroma(t).URL(""))
	migrate(t, env...)
	requireWorks(t, kafkaFleet(t, env, 2))
}

func TestKafkaTransportOnPostgres(t *testing.T) {
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
	require.Contains(t, said, "could not be sent (BROKER_UNAVAILABLE). 2 attempts to send it failed.")
	require.Contains(t, said, `"cause":"BROKER_UNAVAILABLE"`)
	require.NoError(t, kafka.Restart(ctx))
	require.Equal(t, "SUCCEEDED", c.ended(v.TaskID).Status)
}

// A task that is cancelled while it runs holds up no partition: the group ends its record too.
func TestACancelledTaskHoldsUpNoPartition(t *testing.T) {
	t.Parallel()
	bootstrap := labserver.Kafka(t).URL("")
	env, init := onKafka(t, bootstrap)
	init()
	embeddings := embedtest.Start(t, embedtest.Options{})
	embeddings.Set(embedtest.Fault{Kind: embedtest.Hang})
	_, c := startDev(t, append(env, "EMBEDDING_BASE_URL="+embeddings.URL, "EMBEDDING_MODEL=test", "EMBEDDING_API=openai", "INGEST_LEASE_MS=3000")...)
	for i := range 6 {
		id := c.accepted(fmt.Sprintf("%d.txt", i), fmt.Appendf(nil, "Text %d.", i)).TaskID
		c.reaches(id, "RUNNING")
		require.Equal(t, http.StatusOK, c.json(http.MethodPost, "/api/knowledge/tasks/"+id+"/cancel", "").status)
		require.Equal(t, "CANCELLED", c.ended(id).Status)
	}
	topic := strings.TrimPrefix(env[2], "INGEST_KAFKA_TOPIC=")
	config := kafkaq.NewDefaultConfig(bootstrap)
	config.Topic, config.Group = topic, topic
	client, err := kafkaq.NewClient(config)
	require.NoError(t, err)
	defer client.Close()
	eventually(t, "every record is finished", func() bool {
		stats, err := client.Stats(t.Context())
		return err == nil && stats.Lag == 0
	})
}

// What somebody else put on the topic is no delivery: an operator sees it, cannot replay it, and drops it; and the figure of dead
// letters counts it beside a task that died.
func TestUnreadableRecordsOnKafka(t *testing.T) {
	t.Parallel()
	bootstrap := labserver.Kafka(t).URL("")
	env, init := onKafka(t, bootstrap)
	init()
	topic := strings.TrimPrefix(env[2], "INGEST_KAFKA_TOPIC=")
	_, c := startDev(t, env...)
	client, err := kafkaq.NewClient(kafkaq.NewDefaultConfig(bootstrap))
	require.NoError(t, err)
	sender := kafkaq.NewProducer(client)
	for i, junk := range []string{"\x1b[2Jnot json", `{"taskId":7}`} {
		sent := sender.Send(t.Context(), []outbox.Event{{Seq: int64(i), ID: "junk", Topic: topic, Payload: []byte(junk)}})
		require.NoError(t, sent[0].Err)
	}
	require.NoError(t, errors.Join(sender.Close(), client.Close()))
	dead := c.ended(c.accepted("empty.pdf", []byte("%PDF-1.4 nothing")).TaskID)
	require.Equal(t, "DEAD", dead.Status)

	cli := []string{"MILLWEIR_SERVER=" + c.url}
	type deadLetter struct {
		ID, Source string
		TaskID     *string
		Replayable bool
		Raw        map[string]struct{ Value string }
	}
	var all []deadLetter
	eventually(t, "all three are listed", func() bool {
		all = nil
		code, out := run(t, "millweir", cli, "dlq", "list", "-o", "json")
		require.Equal(t, 0, code, out)
		require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&all), out)
		return len(all) == 3
	})
	var raw []string
	for _, l := range all {
		require.Equal(t, "kafka", l.Source)
		if l.TaskID == nil {
			require.False(t, l.Replayable)
			raw = append(raw, l.ID)
			continue
		}
		require.Equal(t, dead.TaskID, *l.TaskID)
		c.do(http.MethodDelete, "/internal/dlq/letters/"+l.ID, nil).refused(t, http.StatusConflict, "LETTER_IS_A_ROW")
	}
	require.Len(t, raw, 2)
	for _, id := range raw {
		code, out := run(t, "millweir", cli, "dlq", "get", id)
		require.Equal(t, 0, code, out)
		require.Regexp(t, `not json|taskId`, out)
		require.NotContains(t, out, "\x1b")
	}
	counted := regexp.MustCompile(`(?m)^ingest_task_dlq_total 3$`)
	eventually(t, "each is counted", func() bool { return counted.Match(c.get("/metrics").body) })

	c.do(http.MethodPost, "/internal/dlq/letters/"+raw[0]+"/replay", nil).refused(t, http.StatusConflict, "LETTER_UNREADABLE")
	code, out := run(t, "millweir", cli, "dlq", "drop", raw[0], "--yes")
	require.Equal(t, 0, code, out)
	code, out = run(t, "millweir", cli, "dlq", "get", raw[0])
	require.Equal(t, 4, code, out)
	code, out = run(t, "millweir", cli, "dlq", "drop", "--all", "--yes")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "1 dropped")
	code, out = run(t, "millweir", cli, "dlq", "list", "-o", "json")
	require.Equal(t, 0, code, out)
	require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&all), out)
	require.Len(t, all, 1, "the row is the truth")
}

// Everything in one process, Kafka too; a task that moved to the other transport is not lost (design D18).
func TestDevOnEitherTransport(t *testing.T) {
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
