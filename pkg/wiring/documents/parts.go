// Package documents puts together what worker and gateway share: the database, the queue, the upload folder, the vector store and
// the embedder, and the application above them.
package documents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/embed/local"
	"github.com/millweir/millweir/pkg/ingest/embed/openai"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
	"github.com/millweir/millweir/pkg/ingest/vector/embedded"
	"github.com/millweir/millweir/pkg/ingest/vector/pgvector"
	"github.com/millweir/millweir/pkg/ingest/vector/qdrant"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/pkg/telemetry"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/database"
	"github.com/millweir/millweir/pkg/wiring/queue"
	"github.com/millweir/millweir/pkg/workflow"
)

// Parts are what such a service is made of; closing the base closes them.
type Parts struct {
	*wiring.Base
	Database   *database.Database
	Store      *taskstore.Store // the database's
	Transports queue.Set
	Files      *files.Folder
	Vectors    ingest.VectorStore
	Embedder   ingest.Embedder
	Earlier    []ingest.Embedder // of bases that were made with other models
}

// Open opens what every such service needs; close it in the end. It does not need a server that answers (design D16).
func Open(ctx context.Context, env *process.Env, s Shared) (*Parts, error) {
	p := &Parts{Base: wiring.New(env)}
	for _, step := range []func() error{
		func() error { return p.openDatabase(ctx, s) },
		func() (err error) { p.Transports, err = queue.Open(p.Base, s.Queue, s.Kafka); return err },
		func() error {
			return p.Database.WatchDurability(ctx, p.Base, s.Store.AllowUnsafe, p.Transports[s.Queue.Kind].Keeps)
		},
		func() error { return p.OpenFiles(s.Uploads) },
		func() error { return p.OpenVectors(s.Vectors.In(s.Store)) },
		func() error { return p.OpenEmbedder(s.Embedding) },
	} {
		if err := step(); err != nil {
			p.Close()
			return nil, err
		}
	}
	env.Log.Info("wiring: parts", slog.String("database", p.Store.Dialect()), slog.String("queue", p.Transports[s.Queue.Kind].Describe()),
		slog.String("vectors", s.Vectors.Kind), slog.String("embeddings", s.Embedding.describe()))
	return p, nil
}

// openDatabase connects; on the Kafka transport changes of tasks write their events.
func (p *Parts) openDatabase(ctx context.Context, s Shared) error {
	var events *database.Events
	if s.Queue.Kind == queue.Kafka {
		events = &database.Events{Topic: s.Kafka.Topic, Group: s.Kafka.Group}
	}
	db, err := database.Connect(ctx, p.Base, s.Store, events)
	if err != nil {
		return err
	}
	p.Database, p.Store = db, db.Store
	return nil
}

// OpenFiles opens the upload folder.
func (p *Parts) OpenFiles(u Uploads) error {
	if err := os.MkdirAll(u.Dir, 0o750); err != nil {
		return fmt.Errorf("UPLOAD_DIR: %w", err)
	}
	folder, err := files.Open(u.Dir)
	if err != nil {
		return fmt.Errorf("UPLOAD_DIR: %w", err)
	}
	p.Files = folder
	p.Later(folder.Close)
	return nil
}

// OpenVectors opens the vector store.
func (p *Parts) OpenVectors(v Vectors) error {
	switch v.Kind {
	case "embedded":
		store, err := embedded.Open(v.Dir, embedded.Options{MaxBytes: v.MaxBytes, Log: p.Env.Log})
		if err != nil {
			return fmt.Errorf("VECTOR_DIR: %w", err)
		}
		p.Vectors = store
		p.Later(store.Close)
	case "pgvector":
		store, err := pgvector.New(v.pgvector())
		if err != nil {
			return err
		}
		p.Vectors = store
		p.Later(store.Close)
	case "qdrant":
		store, err := qdrant.New(v.qdrant())
		if err != nil {
			return err
		}
		p.Vectors = store
		p.Later(store.Close)
	default:
		store, err := chroma.New(chroma.Config{
			BaseURL: v.URL.Reveal(), Tenant: v.Tenant, Database: v.Database, Token: v.Token.Reveal(), Timeout: v.Timeout,
		})
		if err != nil {
			return fmt.Errorf("CHROMA_BASE_URL: %w", err)
		}
		p.Vectors = store
		p.Later(store.Close)
	}
	p.Env.Ready.Register("vectors", p.Vectors.Ping)
	return nil
}

// OpenEmbedder chooses who makes vectors: of new bases, and of those that were made with the built-in model or the one before.
func (p *Parts) OpenEmbedder(e Embedding) error {
	p.Embedder, p.Earlier = local.New(), nil
	cfg := openai.NewDefaultConfig()
	cfg.BatchSize, cfg.Timeout, cfg.Requests, cfg.Tokens = e.BatchSize, e.Timeout, e.Requests, e.Tokens
	budgets := p.Transports.Limiter("ratelimit:embed:", cfg.Limits()...) // of each model its own
	if !e.PreviousURL.Empty() {
		before := cfg
		before.BaseURL, before.Model, before.APIKey = e.PreviousURL.Reveal(), e.PreviousModel, e.PreviousKey.Reveal()
		before.API, before.Dimensions = openai.API(e.PreviousAPI), e.PreviousDimensions
		embedder, err := openai.New(before, budgets)
		if err != nil {
			return errors.New(strings.ReplaceAll("EMBEDDING_BASE_URL: "+err.Error(), "EMBEDDING_", "EMBEDDING_PREVIOUS_"))
		}
		p.Earlier = append(p.Earlier, embedder)
	}
	if e.URL.Empty() {
		return nil
	}
	cfg.BaseURL, cfg.Model, cfg.APIKey, cfg.API = e.URL.Reveal(), e.Model, e.Key.Reveal(), openai.API(e.API)
	cfg.Dimensions = e.Dimensions
	embedder, err := openai.New(cfg, budgets)
	if err != nil {
		return fmt.Errorf("EMBEDDING_BASE_URL: %w", err)
	}
	p.Earlier = append(p.Earlier, p.Embedder)
	p.Embedder = embedder
	return nil
}

// CheckUploads returns nil when the upload folder is the database's, and takes files where that is asked for.
func (p *Parts) CheckUploads(ctx context.Context, a *app.App, writes bool) error {
	if err := a.CheckFolder(ctx); err != nil || !writes {
		return err
	}
	return p.Files.Writable()
}

// Application makes the application over the parts.
func (p *Parts) Application(s Shared, d ingest.Deps, maxUpload int64) (*app.App, error) {
	d.Store, d.Embedder, d.Earlier, d.Vectors = p.Store, p.Embedder, p.Earlier, p.Vectors
	d.MaxTokens, d.TokenPrice = s.Embedding.MaxTokens, s.Embedding.Price
	d.Log, d.Redact = p.Env.Log, telemetry.Redact
	d.Tasks = map[string]tasks.Type{workflow.Type: workflow.NewRecords(p.Store.Dialect())}
	d.TagEmbed = func(ctx context.Context, taskID string, fence int64, batch string) context.Context {
		return embed.WithCall(ctx, embed.Call{TaskID: taskID, Fence: fence, Batch: batch})
	}
	cfg := ingest.NewDefaultConfig()
	cfg.MaxAttempts, cfg.MaxBacklog = s.Tasks.MaxAttempts, s.Tasks.MaxBacklog
	if maxUpload > 0 {
		cfg.MaxUploadBytes = maxUpload
	}
	return app.New(d, p.Files, cfg)
}

// Workflows are the built-in workflows over an application, those of the process itself, and those of WORKFLOWS_FILE. worker is nil where
// they are not run.
func (p *Parts) Workflows(s Workflows, a *app.App, worker *pipeline.Worker, own ...workflow.Workflow) (*workflow.Registry, error) {
	more, err := workflow.Load(s.File)
	if err != nil {
		return nil, fmt.Errorf("WORKFLOWS_FILE: %w", err)
	}
	networks, err := workflows.ParseNetworks(s.Networks)
	if err != nil {
		return nil, fmt.Errorf("INGEST_URL_NETWORKS: %w", err)
	}
	all, err := workflow.New(slices.Concat(workflows.New(a, p.Store, networks, worker), own, more)...)
	if err != nil {
		return nil, fmt.Errorf("WORKFLOWS_FILE: %w", err)
	}
	return all, nil
}
