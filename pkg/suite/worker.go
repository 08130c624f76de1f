package suite

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/split"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/telemetry"
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

// RunWorker is the body of stream-worker, kafka-consumer and reclaimer: it runs tasks until ctx ends.
func RunWorker(ctx context.Context, env *process.Env, w *Worker, role Role) error {
	if err := role.reads(w.Shared.Queue.Kind); err != nil {
		return err
	}
	p, err := Open(ctx, env, w.Shared)
	if err != nil {
		return err
	}
	defer p.Close()
	services, err := p.Worker(w, role)
	if err != nil {
		return err
	}
	if !p.waitForSchema(ctx) {
		return nil
	}
	return process.RunAll(ctx, services...)
}

// reads refuses a queue that a role does not read: its deliveries would wait for nobody.
func (r Role) reads(queue string) error {
	switch {
	case r == RoleWorker && queue != QueueRedis:
		return process.BadSetting("INGEST_QUEUE", "is %s: stream-worker reads Redis Streams; run kafka-consumer", queue)
	case r == RoleConsumer && queue != QueueKafka:
		return process.BadSetting("INGEST_QUEUE", "is %s: kafka-consumer reads Kafka; run stream-worker", queue)
	default:
		return nil
	}
}

// sweeps tells whether a role tidies up what is nobody's task.
func (r Role) sweeps() bool { return r == RoleReclaimer || r == RoleAll }

// Worker makes the runner of a role and, unless a reclaimer does it, the sweeper of documents.
func (p *Parts) Worker(w *Worker, role Role) ([]process.Service, error) {
	policy := w.Shared.policy()
	cfg, err := w.Work.runner(processName(string(role)), policy, role != RoleReclaimer)
	if err != nil {
		return nil, err
	}
	queue, events, deadLetters, err := p.transport(w)
	if err != nil {
		return nil, err
	}
	pool, err := extract.NewPool(w.Content.Extract, p.Env.Log)
	if err != nil {
		return nil, fmt.Errorf("EXTRACT_*: %w", err)
	}
	p.later(pool.Close)
	p.watch(pool.Collector())
	splitter, err := split.New(w.Content.Split)
	if err != nil {
		return nil, fmt.Errorf("CHUNK_*: %w", err)
	}
	publisher, _ := queue.(ingestq.Publisher) // nil where deliveries are events
	a, err := p.app(w.Shared, ingest.Deps{Publisher: publisher, Extractor: pool, Splitter: splitter, Policy: policy}, 0)
	if err != nil {
		return nil, err
	}
	kind, err := a.Worker()
	if err != nil {
		return nil, err
	}
	runner := taskrun.New(cfg, taskrun.Deps{
		Store: p.Store, Queue: queue, Outbox: events, DeadLetters: deadLetters, Handlers: map[string]taskrun.Handler{ingest.TypeDocument: kind},
		Log: p.Env.Log, Metrics: p.Env.Metrics, Tracer: otel.Tracer("github.com/millweir/millweir/pkg/taskrun"),
		Fit: kind.Fit,
	})
	p.Env.Ready.Register("uploads", func(ctx context.Context) error { return p.uploads(ctx, a, role.sweeps()) })
	p.Env.Ready.Register("queue", queue.Ping)
	p.Env.Ready.Register("runner", func(context.Context) error { return runner.Ready() })
	services := []process.Service{
		process.Named("runner", runner),
		process.Named("warm extractor", process.ServiceFunc(func(ctx context.Context) error { return warm(ctx, p, pool) })),
	}
	if role.sweeps() {
		janitor, err := p.janitor(w.Shared.Kafka)
		if err != nil {
			return nil, err
		}
		services = append(services, process.Named("sweeper", process.ServiceFunc(a.RunSweeper)), janitor)
	}
	if role.sweeps() && w.Work.CheckMS > 0 {
		sampler := fsck.NewSampler(p.Store, p.Vectors, policy, ms(w.Work.CheckMS), p.Env.Log, p.Env.Metrics)
		p.Env.Ready.Register("visible vectors", func(context.Context) error { return lostVectors(sampler.Lost()) })
		services = append(services, process.Named("checker", sampler))
	}
	return services, nil
}

// lostVectors is a warning that names how many bases have lost vectors, and one of them; nil: none has.
func lostVectors(bases []string) error {
	if len(bases) == 0 {
		return nil
	}
	return process.Warning(fmt.Sprintf("the vector store has lost visible vectors of %d knowledge bases, %s is one: run millweir fsck --repair", len(bases), bases[0]))
}

// uploads returns nil when the upload folder is the database's, and takes files where that is asked for.
func (p *Parts) uploads(ctx context.Context, a *app.App, writes bool) error {
	if err := a.CheckFolder(ctx); err != nil || !writes {
		return err
	}
	return p.Files.Writable()
}

// app makes the application over the parts.
func (p *Parts) app(s Shared, d ingest.Deps, maxUpload int64) (*app.App, error) {
	d.Store, d.Embedder, d.Vectors = p.Store, p.Embedder, p.Vectors
	d.Log, d.Redact = p.Env.Log, telemetry.Redact
	d.TagEmbed = tagEmbed
	cfg := ingest.NewDefaultConfig()
	cfg.MaxAttempts, cfg.MaxBacklog = s.Tasks.MaxAttempts, s.Tasks.MaxBacklog
	if maxUpload > 0 {
		cfg.MaxUploadBytes = maxUpload
	}
	return app.New(d, p.Files, cfg)
}

// tagEmbed names the task, claim and batch of an embedding call in its headers.
func tagEmbed(ctx context.Context, taskID string, fence int64, batch string) context.Context {
	return embed.WithCall(ctx, embed.Call{TaskID: taskID, Fence: fence, Batch: batch})
}

// warm compiles the PDF reader once, so that the first document does not wait for it, and then rests.
func warm(ctx context.Context, p *Parts, pool *extract.Pool) error {
	if err := pool.Warm(ctx); err != nil && ctx.Err() == nil {
		p.Env.Log.Warn("suite: the PDF reader could not be prepared", "error", err)
	}
	<-ctx.Done()
	return nil
}
