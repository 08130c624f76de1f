package work

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
)

const (
	// defaultLease is INGEST_LEASE_MS where nothing sets it.
	defaultLease = 30 * time.Second
	// defaultSettle is how long a pending delivery of a killed worker may lie there whose task another delivery ended:
	// INGEST_REDIS_RECLAIM_IDLE_MS is ten minutes.
	defaultSettle = 12 * time.Minute
	// defaultKafkaSettle is a lease, a session and a relay's lease on two busy cores.
	defaultKafkaSettle = 3 * time.Minute
)

// addresses are what services of a drill on defaults are told: where things are, and nothing of how they work.
var addresses = []string{
	"LOG_FORMAT", "PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "OPERATOR_ADDR", "HTTP_ADDR", "MYSQL_DSN", "DATABASE_URL", "VECTOR_STORE",
	"CHROMA_BASE_URL", "AUTH_MODE", "UPLOAD_DIR", "REDIS_URL", "INGEST_QUEUE", "KAFKA_BOOTSTRAP_SERVERS", "INGEST_KAFKA_TOPIC",
	"EMBEDDING_BASE_URL", "EMBEDDING_MODEL",
}

// Defaults kills workers at work, gateway, reclaimer and broker once or twice, on settings that nobody changed: services know
// addresses alone. Two kills of workers cost a task two crashes at most, and the third would end it.
func Defaults(ctx context.Context, s *stage.Stage) (string, error) {
	s.Defaults = true
	var m stage.Mourning
	settle, turn := defaultSettle, []string{"stream-worker", "ingest-api", "reclaimer", "stream-worker", "broker"}
	if s.Kafka {
		settle, turn = defaultKafkaSettle, []string{"kafka-consumer", "outbox-relay", "ingest-api", "reclaimer", "kafka-consumer", "broker"}
	}
	return stage.Storm{
		Settle: settle,
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			if err := onlyAddresses(c.Told()); err != nil {
				return err
			}
			for _, name := range turn {
				await.Pause(ctx, s.Load/time.Duration(len(turn)+1))
				if name == "broker" {
					if err := stage.RestartBroker(ctx, c); err != nil {
						return err
					}
					continue
				}
				victim := s.One(c, name)
				if strings.HasSuffix(name, "worker") || strings.HasSuffix(name, "consumer") {
					stage.AwaitWork(ctx, c, victim)
				}
				if err := m.Kill(ctx, c, victim); err != nil {
					return err
				}
				if _, err := c.Add(name); err != nil {
					return err
				}
			}
			await.Pause(ctx, s.Load/time.Duration(len(turn)+1))
			return nil
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			if err := onlyAddresses(c.Told()); err != nil {
				return "", err
			}
			return m.Within(ctx, c, defaultLease+2*time.Second)
		},
	}.Run(ctx, s)
}

// onlyAddresses returns an error that names a setting which changes how a service works.
func onlyAddresses(told [][]string) error {
	for _, env := range told {
		for _, setting := range env {
			if name, _, _ := strings.Cut(setting, "="); !slices.Contains(addresses, name) {
				return fmt.Errorf("a service runs with %s: this drill is on defaults", setting)
			}
		}
	}
	return nil
}
