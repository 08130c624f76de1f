// Package work has the scenes that break the services themselves, or the documents they work on.
package work

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/ingest/vector/embedded"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/judge"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

// Kill9 kills any of the separate services at random moments under load and starts it again.
func Kill9(ctx context.Context, s *stage.Stage) (string, error) {
	victims, least, more := []string{"stream-worker", "stream-worker", "stream-worker", "reclaimer", "ingest-api"}, 100, 1500
	services := s.Services
	if s.Kafka { // a killed member holds its partitions until its session is over: the group gets the time to work in between
		victims, least, more = []string{"outbox-relay", "outbox-relay", "kafka-consumer", "kafka-consumer", "kafka-consumer", "ingest-api", "reclaimer"}, 500, 4000
		services = append(slices.Clone(services), "outbox-relay")
	}
	env := stage.Patient
	if s.RabbitMQ {
		victims, env = append(victims, "stream-mirror", "stream-mirror"), append(slices.Clone(env), world.AuditEnv()...)
	}
	kills := 0
	return stage.Storm{
		Opts: world.Options{Env: env}, Services: services,
		Faults: func(ctx context.Context, c *stage.Cluster) (err error) {
			kills, err = s.KillAtRandom(ctx, c, least, more, victims...)
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			taken, err := stage.Takeovers(ctx, c.DB.Reader())
			if err == nil && s.RabbitMQ {
				err = await.Until(ctx, stage.LiveLimit, time.Second, c.Unaudited)
			}
			return met(kills, taken, err)
		},
	}.Run(ctx, s)
}

// met says what kills met; kills that met no work prove nothing.
func met(kills, taken int, err error) (string, error) {
	if err == nil && taken == 0 {
		err = fmt.Errorf("%d kills met no task at work", kills)
	}
	return fmt.Sprintf("%d kills, %d takeovers", kills, taken), err
}

// Kill9Dev kills the all-in-one at random moments under load and starts it again on the same data.
func Kill9Dev(ctx context.Context, s *stage.Stage) (string, error) {
	w, err := world.New(ctx, s.Bench, world.Options{Name: s.Name, Partitions: s.Partitions, Alone: true, Evidence: true, Embedder: &embedtest.Options{}, Env: stage.Patient})
	if err != nil {
		return "", err
	}
	defer w.Close()
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	addr := world.FreeAddr()
	p, err := w.StartDev(ctx, addr)
	if err != nil {
		return "", err
	}
	client := apiclient.NewClient(p.HTTP)
	stop := stage.Background(ctx, apiclient.Load{Target: client, Clients: 3, Bytes: stage.DocBytes, Every: 250 * time.Millisecond})
	kills := 0
	for end := time.Now().Add(s.Load); time.Now().Before(end) && ctx.Err() == nil; kills++ {
		await.Pause(ctx, time.Duration(100+s.Random.IntN(2500))*time.Millisecond)
		p.Kill()
		if p, err = w.StartDev(ctx, addr); err != nil {
			return "", fmt.Errorf("start after kill %d: %w", kills+1, err)
		}
	}
	load := stop()
	taken, err := verifyDev(ctx, s, w, p, client, load)
	if err != nil {
		return "", err
	}
	if n := len(load.Accepted); n < s.Least() {
		return "", fmt.Errorf("%d documents were accepted, fewer than %d: the kills met no load", n, s.Least())
	}
	saw, err := met(kills, taken, nil)
	return saw + "; " + stage.Summary(load), err
}

// verifyDev waits for rest, searches, stops the all-in-one and judges its SQLite file and vector files.
// It returns how many tasks were taken over.
func verifyDev(ctx context.Context, s *stage.Stage, w *world.World, p *proc.Proc, client *apiclient.Client, load *apiclient.Record) (int, error) {
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(w.Data(), "millweir.db")})
	if err != nil {
		return 0, err
	}
	defer db.Close() //nolint:errcheck // only read
	a := judge.Audit{DB: db.Reader(), Load: load, World: w}
	if err := a.Rest(ctx, stage.SettleLimit); err != nil {
		return 0, err
	}
	if err := stage.FindSome(ctx, client, load); err != nil {
		return 0, err
	}
	if err := w.NoStrays(ctx); err != nil {
		return 0, err
	}
	if code, err := p.Stop(ctx, stage.StopLimit); err != nil || code != 0 {
		return 0, fmt.Errorf("exit code after SIGTERM: %d, %w; end of %s:\n%s", code, err, p.Log, p.Tail(12))
	}
	vectors, err := embedded.Open(filepath.Join(w.Data(), "vectors"), embedded.Options{})
	if err != nil {
		return 0, err
	}
	defer vectors.Close() //nolint:errcheck // only read
	a.Vectors = vectors
	report, err := a.Judge(ctx)
	s.Said.Add(report)
	if err != nil {
		return 0, err
	}
	return stage.Takeovers(ctx, db.Reader())
}

const (
	// patientLease is INGEST_LEASE_MS of patient.
	patientLease = 2 * time.Second
	// takeoverGoal is how long after a kill its tasks run again at the latest.
	takeoverGoal = patientLease + 2*time.Second
)

// Kill9Each kills gateway, worker and reclaimer in turn; the others go on without it before it comes back.
func Kill9Each(ctx context.Context, s *stage.Stage) (string, error) {
	var m stage.Mourning
	turn := []string{"ingest-api", "stream-worker", "reclaimer"}
	return stage.Storm{
		Opts: world.Options{Env: stage.Patient},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			_, err := s.Rounds(ctx, func(round int) error {
				s.Between(ctx, 500*time.Millisecond, 1500*time.Millisecond)
				name := turn[round%len(turn)]
				if err := m.Kill(ctx, c, s.One(c, name)); err != nil {
					return err
				}
				s.Between(ctx, time.Second, patientLease+time.Second)
				_, err := c.Add(name)
				return err
			})
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			return m.Within(ctx, c, takeoverGoal)
		},
	}.Run(ctx, s)
}

// Kill9All kills everything at one moment and starts it in random order. Nobody is there to take over while all are
// dead, so the time counts from the start of the last one.
func Kill9All(ctx context.Context, s *stage.Stage) (string, error) {
	var m stage.Mourning
	return stage.Storm{
		Opts: world.Options{Env: stage.Patient},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			_, err := s.Rounds(ctx, func(int) error {
				s.Between(ctx, time.Second, 4*time.Second)
				first := len(m.Orphans)
				if err := m.Kill(ctx, c, append([]*proc.Proc(nil), c.Procs...)...); err != nil {
					return err
				}
				for _, i := range s.Random.Perm(len(s.Services)) {
					s.Between(ctx, 0, 300*time.Millisecond)
					if _, err := c.Add(s.Services[i]); err != nil {
						return err
					}
				}
				for i := range m.Orphans[first:] {
					m.Orphans[first+i].At = time.Now()
				}
				return c.AllReady(ctx, stage.LiveLimit)
			})
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			return m.Within(ctx, c, takeoverGoal)
		},
	}.Run(ctx, s)
}

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
