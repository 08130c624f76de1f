// Package worker puts together what runs tasks: stream-worker, kafka-consumer, reclaimer, and the all-in-one's.
package worker

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel"

	"github.com/millweir/millweir/pkg/checks/checker"
	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/split"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/telemetry"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/queue"
	"github.com/millweir/millweir/pkg/workflow"
)

// Role is which of the runner's loops a process has.
type Role string

// The roles.
const (
	RoleWorker    Role = "stream-worker"  // new deliveries on Redis; recovery with part of its slots
	RoleConsumer  Role = "kafka-consumer" // the same on Kafka
	RoleReclaimer Role = "reclaimer"      // recovery and sweeps with slots of its own
	RoleAll       Role = "dev"            // both, in the all-in-one
)

// Run is the body of stream-worker, kafka-consumer and reclaimer: it runs tasks until ctx ends; what runs then is ended or
// handed back.
func Run(ctx context.Context, env *process.Env, s *Settings, role Role) error {
	if err := role.reads(s.Shared.Queue.Kind); err != nil {
		return err
	}
	p, err := documents.Open(ctx, env, s.Shared)
	if err != nil {
		return err
	}
	defer p.Close()
	services, err := Services(p, s, role)
	if err != nil {
		return err
	}
	if !p.Database.WaitForSchema(ctx) {
		return nil
	}
	return process.RunAll(ctx, services...)
}

// reads refuses a queue that a role does not read: its deliveries would wait for nobody.
func (r Role) reads(kind string) error {
	switch {
	case r == RoleWorker && kind != queue.Redis:
		return process.BadSetting("INGEST_QUEUE", "is %s: stream-worker reads Redis Streams; run kafka-consumer", kind)
	case r == RoleConsumer && kind != queue.Kafka:
		return process.BadSetting("INGEST_QUEUE", "is %s: kafka-consumer reads Kafka; run stream-worker", kind)
	default:
		return nil
	}
}

// sweeps tells whether a role tidies up what is nobody's task.
func (r Role) sweeps() bool { return r == RoleReclaimer || r == RoleAll }

// Services makes the runner of a role and, unless a reclaimer does it, the sweeper of documents.
func Services(p *documents.Parts, s *Settings, role Role) ([]process.Service, error) {
	deps, err := transport(p, s)
	if err != nil {
		return nil, err
	}
	server := p.Transports[s.Shared.Queue.Kind]
	p.Env.Ready.Register("queue version", func(ctx context.Context) error { return wiring.CheckVersion(ctx, server.Version) })
	return services(p, s, role, deps)
}

// Over makes the runner of a process that reads its deliveries from a queue of its own.
func Over(p *documents.Parts, s *Settings, name string, q ingestq.Consumer) ([]process.Service, error) {
	return services(p, s, Role(name), taskrun.Deps{Queue: q})
}

// services makes a runner over a queue, and what goes with it.
func services(p *documents.Parts, s *Settings, role Role, deps taskrun.Deps) ([]process.Service, error) {
	policy := s.Shared.Policy()
	cfg, err := s.Work.runner(processName(string(role)), policy, role != RoleReclaimer)
	if err != nil {
		return nil, err
	}
	pool, err := extract.NewPool(s.reading(), p.Env.Log)
	if err != nil {
		return nil, fmt.Errorf("EXTRACT_*, PDF_*: %w", err)
	}
	p.Later(pool.Close)
	p.Watch(pool.Collector())
	splitter, err := split.New(s.Content.Split, s.Shared.Embedding.MaxTokens)
	if err != nil {
		return nil, fmt.Errorf("CHUNK_*: %w", err)
	}
	publisher, _ := deps.Queue.(ingestq.Publisher) // nil where deliveries are events
	d := ingest.Deps{
		Publisher: publisher, Extractor: pool, Splitter: splitter, Policy: policy, Detect: s.Shared.Accept.Type,
		Adopts: role == RoleAll, // it takes uploads: it may mark a new upload folder (design D20)
	}
	a, err := p.Application(s.Shared, d, 0)
	if err != nil {
		return nil, err
	}
	kind, err := a.Worker()
	if err != nil {
		return nil, err
	}
	known, err := p.Workflows(s.Shared.Workflows, a, kind, checkOf(p, s, policy).Workflow())
	if err != nil {
		return nil, err
	}
	deps.Store, deps.Handlers = p.Store, map[string]taskrun.Handler{
		ingest.TypeDocument: kind,
		workflow.Type:       workflow.Handler{Records: workflow.NewRecords(p.Store.Dialect()), Workflows: known},
	}
	deps.Log, deps.Metrics, deps.Fit = p.Env.Log, p.Env.Metrics, kind.Fit
	if telemetry.TracesExported() {
		deps.Tracer = otel.Tracer("github.com/millweir/millweir/pkg/taskrun")
	}
	runner := taskrun.New(cfg, deps)
	p.Env.Ready.Register("uploads", func(ctx context.Context) error { return p.CheckUploads(ctx, a, role.sweeps()) })
	p.Env.Ready.Register("queue", deps.Queue.Ping)
	p.Env.Ready.Register("runner", func(context.Context) error { return runner.Ready() })
	services := []process.Service{
		process.Named("runner", runner),
		process.Named("warm extractor", process.ServiceFunc(func(ctx context.Context) error { return warm(ctx, p, pool) })),
	}
	if role.sweeps() {
		janitor, err := p.Database.Janitor(s.Shared.Kafka.Topic, s.Shared.Kafka.RetentionHours)
		if err != nil {
			return nil, err
		}
		services = append(services, process.Named("sweeper", process.ServiceFunc(a.RunSweeper)), janitor)
		if v, ok := p.Transports[s.Shared.Queue.Kind].(queue.Viewer); ok {
			services = append(services, process.Named("views", views{v, a.Service, wiring.MS(s.Work.SweepMS), p.Env.Log}))
		}
	}
	if role.sweeps() && s.Work.CheckMS > 0 {
		sampler := fsck.NewSampler(p.Store, p.Vectors, policy, wiring.MS(s.Work.CheckMS), p.Env.Log, p.Env.Metrics)
		p.Env.Ready.Register("visible vectors", func(context.Context) error { return lostVectors(sampler.Lost()) })
		services = append(services, process.Named("checker", sampler))
	}
	return services, nil
}

// checkOf are the tools with which this process checks the installation. Copies in RabbitMQ are not looked at: few processes know the way.
func checkOf(p *documents.Parts, s *Settings, policy taskstate.Policy) checker.Tools {
	t := checker.Tools{
		Store: p.Store, Evidence: fsck.Evidence{Vectors: p.Vectors, Files: p.Files}, Embedders: append([]ingest.Embedder{p.Embedder}, p.Earlier...),
		Policy: policy, DLQ: s.Shared.Queue.Kind == queue.Kafka || s.Shared.Queue.DLQKey != "",
	}
	if q, ok := p.Transports[s.Shared.Queue.Kind]; ok {
		t.Evidence.Queue = q.Inspector()
	}
	return t
}

// transport makes the parts of a runner that INGEST_QUEUE decides.
func transport(p *documents.Parts, s *Settings) (deps taskrun.Deps, err error) {
	if deps.Queue, err = p.Transports[s.Shared.Queue.Kind].Member(s.Work.membership()); err != nil {
		return deps, err
	}
	// Without the brokers' address no relay can send dead letters that the other transport has left (design D11).
	if s.Shared.Queue.Kind == queue.Kafka || s.Shared.Kafka.Bootstrap == "" {
		deps.Outbox = outbox.NewReader(p.Store, s.Shared.Kafka.Topic)
	}
	for _, t := range p.Transports { // entries that rows owe since they were on another transport
		if w := t.DeadLetterWriter(); w != nil {
			deps.DeadLetters = w
		}
	}
	return deps, nil
}

// processName names this start of a process in leases: unique, ASCII, and short, since every claim writes it.
func processName(service string) string {
	return service + "-" + strings.ToLower(rand.Text()[:8])
}

// lostVectors is a warning that names how many bases have lost vectors, and one of them; nil: none has.
func lostVectors(bases []string) error {
	if len(bases) == 0 {
		return nil
	}
	return process.Warning(fmt.Sprintf("the vector store has lost visible vectors of %d knowledge bases, %s is one: run millweir fsck --repair", len(bases), bases[0]))
}

// warm compiles the PDF reader once, so that the first document does not wait for it, and then rests.
func warm(ctx context.Context, p *documents.Parts, pool *extract.Pool) error {
	if err := pool.Warm(ctx); err != nil && ctx.Err() == nil {
		p.Env.Log.Warn("wiring: the PDF reader could not be prepared", slog.Any("error", err))
	}
	<-ctx.Done()
	return nil
}
