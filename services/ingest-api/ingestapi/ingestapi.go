// Package ingestapi is the body of ingest-api: the gateway over the application.
//
// Uploads that come while one transaction runs share the next one, and its commit; each is answered for itself. What the table
// says holds for each of them: the transaction is committed as a whole, before the first of their deliveries is added.
//
// What a crash leaves of an upload, and who mends it:
//
//	died after …         left                               mended by
//	temp file            a file that no row names           the sweeper, after 6 h
//	rename, fsync        the same                           the same
//	commit               a QUEUED row without a delivery    the read watermark sweep adds it
//	XADD                 row and delivery, no answer        the client's retry with its Idempotency-Key gets the same task
//
// On the Kafka transport the delivery is an event of that very transaction: there is no row without one.
package ingestapi

import (
	"context"
	"errors"
	"github.com/millweir/millweir/pkg/tasks/views"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/auth/token"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/wiring/documents"
	wiring "github.com/millweir/millweir/pkg/wiring/gateway"
	_ "github.com/millweir/millweir/pkg/wiring/kafka" // one of the two carries deliveries
	_ "github.com/millweir/millweir/pkg/wiring/redis"
	"github.com/millweir/millweir/services/ingest-api/gateway"
)

// Config are the settings of ingest-api.
type Config struct {
	Shared documents.Shared
	HTTP   gateway.Config
	Search wiring.Search
	Tokens Tokens
	OIDC   OIDC
}

// Validate joins the problems of all parts.
func (c *Config) Validate() error {
	return errors.Join(c.Shared.Validate(), c.HTTP.Validate(), c.Search.Validate(), c.Tokens.Validate(), c.OIDC.Validate())
}

// Run serves until ctx ends.
func Run(ctx context.Context, env *process.Env, cfg *Config) error {
	parts, err := documents.Open(ctx, env, cfg.Shared)
	if err != nil {
		return err
	}
	defer parts.Close()
	services, _, err := Services(ctx, parts, cfg)
	if err != nil {
		return err
	}
	return process.RunAll(ctx, services...)
}

// Services makes the gateway with what runs beside it; addr is where it listens.
func Services(ctx context.Context, p *documents.Parts, cfg *Config) (services []process.Service, addr string, err error) {
	app, err := wiring.New(p, cfg.Shared, cfg.Search, cfg.HTTP.UploadMaxBytes)
	if err != nil {
		return nil, "", err
	}
	keys := auth.New(p.Store, p.Env.Log, time.Now)
	trail := audit.New(p.Store, p.Env.Log)
	callers, err := authenticator(keys, cfg)
	if err != nil {
		return nil, "", err
	}
	provider, err := cfg.OIDC.Provider()
	if err != nil {
		return nil, "", err
	}
	mq, err := wiring.MQ(p)
	if err != nil {
		return nil, "", err
	}
	p.Env.Ready.Register("schema", p.Database.CheckSchema)
	server, err := gateway.NewServer(ctx, cfg.HTTP, gateway.Deps{
		Service: app, Workflows: app.Workflows, Bulk: app.Bulk, Checks: app.Checks, Views: views.New(p.Store), Settings: process.EffectiveSettings(cfg), Auth: callers, Keys: keys, Sessions: keys, Provider: provider, Audit: trail, Outbox: outbox.NewStore(p.Store), DeadLetters: wiring.DeadLetters(p, cfg.Shared, app), MQ: mq,
		Limiter: limiter(p, "ratelimit:upload:", cfg.HTTP.UploadLimit()), Logins: limiter(p, "ratelimit:login:", cfg.HTTP.LoginLimit()),
		Readiness: p.Env.Ready,
		Metrics:   process.MetricsHandler(p.Env), Registerer: p.Env.Metrics, Tracer: otel.GetTracerProvider(),
		Logger: p.Env.Log, Version: p.Env.Version,
	})
	if err != nil {
		return nil, "", err
	}
	services = append(app.Services(), process.Named("gateway", server), process.Named("keys", keys), process.Named("audit", trail))
	return services, server.Addr(), nil
}

// authenticator takes API keys, and tokens when their issuer is configured.
func authenticator(keys *auth.Keys, cfg *Config) (gateway.Authenticator, error) {
	tokens, err := cfg.Tokens.Verifier()
	if tokens == nil || err != nil {
		return keys, err
	}
	return token.Chain{Keys: keys, Tokens: tokens}, nil
}

// limiter counts for all gateways together; nil: the gateway has one of its own where there is a limit.
func limiter(p *documents.Parts, prefix string, limit ratelimit.Limit) ratelimit.Limiter {
	if limit.Events == 0 {
		return nil
	}
	return p.Transports.Limiter(prefix, limit)
}
