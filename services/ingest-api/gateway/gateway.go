// Package gateway is the HTTP face of Millweir: routes, uploads, events, errors, access.
//
// It decides nothing about documents and tasks: every route turns a request into one or two calls of ingest.Service
// and the answer into JSON (contract §4). New makes the handler, Server.Run serves it.
//
// Packages, from the bottom: web is what all parts share (routes, problems, parameters), views turns rows into the types of
// pkg/wire; uploads, documents, tasks, workflows, topics, deadletters and operators have the routes; apidoc describes them, and a test
// compares the description with the routes; console shows them to people in a browser. This package has the middleware and puts the parts together.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/ratelimit"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/tasks/views"
	"github.com/millweir/millweir/pkg/workflow"
	"github.com/millweir/millweir/services/ingest-api/gateway/apidoc"
	"github.com/millweir/millweir/services/ingest-api/gateway/console"
	"github.com/millweir/millweir/services/ingest-api/gateway/deadletters"
	"github.com/millweir/millweir/services/ingest-api/gateway/documents"
	"github.com/millweir/millweir/services/ingest-api/gateway/filters"
	"github.com/millweir/millweir/services/ingest-api/gateway/operations"
	"github.com/millweir/millweir/services/ingest-api/gateway/operators"
	"github.com/millweir/millweir/services/ingest-api/gateway/shares"
	"github.com/millweir/millweir/services/ingest-api/gateway/tasks"
	"github.com/millweir/millweir/services/ingest-api/gateway/topics"
	"github.com/millweir/millweir/services/ingest-api/gateway/uploads"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
	"github.com/millweir/millweir/services/ingest-api/gateway/workflows"
)

// Authenticator knows the callers; auth.Keys is one.
type Authenticator interface {
	// Authenticate returns who holds the secret. Errors: auth.ErrInvalidKey, taskstate.ErrUnavailable.
	Authenticate(ctx context.Context, secret string) (auth.Principal, error)
}

// Readiness knows the dependencies of the process; process.Ready is one.
type Readiness interface {
	// Check looks at all of them.
	Check(ctx context.Context) process.Report
}

// Deps are the parts that a gateway works with. Service and Logger are required; Auth and Keys with AUTH_MODE=keys.
type Deps struct {
	Service     ingest.Service
	Auth        Authenticator
	Keys        operators.KeyAdmin    // nil: /internal/keys answers 404
	Sessions    Sessions              // nil: nobody can log in to the console
	Provider    Provider              // nil: nobody logs in to the console but with an API key
	Audit       web.AuditLog          // nil: nothing is noted, /internal/audit answers 404
	Outbox      operators.Outbox      // nil: /internal/outbox answers 404
	Workflows   *workflow.Registry    // nil: payloads of workflows are checked by the workers alone
	Settings    []process.Effective   // nil: /internal/settings returns 404
	Views       *views.Views          // nil: /api/knowledge/views returns 404
	Checks      *checks.Checks        // nil: /internal/fsck returns 404
	Bulk        *bulk.Operations      // nil: /api/knowledge/bulk returns 404
	MQ          *streammq.MQ          // nil: /internal/mq and /internal/dlq/topics answer 404
	DeadLetters deadletters.Service   // nil: /internal/dlq answers 404
	Limiter     ratelimit.Limiter     // of uploads; nil: a local one of the configured limit
	Logins      ratelimit.Limiter     // of failed logins; nil: a local one of the configured limit
	Readiness   Readiness             // nil: always ready while it serves
	Metrics     http.Handler          // the Prometheus text; nil: /metrics answers 404
	Registerer  prometheus.Registerer // nil: metrics are counted and not shown
	Tracer      trace.TracerProvider  // nil: no spans; the caller's trace context is passed on
	Logger      *slog.Logger
	Now         func() time.Time // nil: time.Now
	Version     string           // shown in the OpenAPI document; empty: "dev"
}

// Gateway is the API's handler with what it needs. Make one with New.
type Gateway struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	tracer  trace.Tracer
	trail   web.Trail
	guesses *guesses
	metrics *web.Metrics
	engine  *gin.Engine
	turn    chan struct{} // of look-ups of sessions for networks that guess
	codes   chan struct{} // of the same for codes of the identity provider, which takes longer
	handler http.Handler
	api     *apidoc.Document
	proxies []netip.Prefix // TRUSTED_PROXIES

	shares *shares.Shares
	routes []web.Route // all that the gateway answers

	drainOnce sync.Once
	draining  chan struct{} // closed at a stop: not ready, streams and waits end
}

// New checks the settings and makes the gateway.
func New(cfg Config, deps Deps) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Service == nil || deps.Logger == nil {
		return nil, errors.New("gateway: a service and a logger are required")
	}
	if cfg.AuthMode == AuthKeys && deps.Auth == nil {
		return nil, errors.New("gateway: AUTH_MODE=keys needs an authenticator")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Tracer == nil {
		deps.Tracer = noop.NewTracerProvider()
	}
	g := &Gateway{
		cfg: cfg, deps: deps, log: deps.Logger,
		tracer:   deps.Tracer.Tracer("github.com/millweir/millweir/services/ingest-api/gateway"),
		trail:    web.Trail{Log: deps.Audit},
		guesses:  &guesses{limiter: limiterOf(deps.Logins, cfg.LoginLimit(), deps.Now), now: deps.Now, blocked: map[string]time.Time{}},
		shares:   sharesOf(cfg),
		metrics:  web.NewMetrics(deps.Registerer),
		turn:     make(chan struct{}, 1),
		codes:    make(chan struct{}, 1),
		draining: make(chan struct{}),
	}
	var err error
	if g.proxies, err = cfg.proxies(); err != nil {
		return nil, err
	}
	if g.api, err = apidoc.Load(deps.Version); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	g.routes = g.furnish()
	if g.engine, err = g.newEngine(); err != nil {
		return nil, err
	}
	pages, err := g.newConsole()
	if err != nil {
		return nil, fmt.Errorf("make the console: %w", err)
	}
	g.handler = g.guardOrigin(split(pages, console.Path, g.engine))
	return g, nil
}

// ServeHTTP returns one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// Drain makes the gateway not ready and ends event streams and waits; other requests go on. It may be called again.
func (g *Gateway) Drain() { g.drainOnce.Do(func() { close(g.draining) }) }

// furnish makes the parts that answer requests, and returns their routes.
func (g *Gateway) furnish() []web.Route {
	cfg, deps := g.cfg, g.deps
	takeIn := &uploads.Handler{
		Svc: deps.Service, Limiter: limiterOf(deps.Limiter, cfg.UploadLimit(), deps.Now), Shares: g.shares, Metrics: g.metrics,
		Now: deps.Now, Log: deps.Logger, Draining: g.draining,
		Limits: uploads.Limits{
			FileBytes: cfg.UploadMaxBytes, RequestBytes: cfg.requestLimit(), Idle: cfg.UploadIdleTimeout, Longest: cfg.UploadMaxDuration,
			MinRate: cfg.UploadMinRate,
		},
	}
	asked := &workflows.Handler{
		Svc: deps.Service, Known: deps.Workflows, Limiter: takeIn.Limiter, Metrics: g.metrics, Draining: g.draining,
	}
	operations := &operations.Handler{Svc: deps.Service, Operations: deps.Bulk, Trail: g.trail, Now: deps.Now, Draining: g.draining}
	checked := &operators.ChecksHandler{Checks: deps.Checks, Trail: g.trail, Draining: g.draining}
	filters := &filters.Handler{Svc: deps.Service, Views: deps.Views, Now: deps.Now}
	documents := &documents.Handler{Svc: deps.Service, Trail: g.trail}
	tasks := &tasks.Handler{
		Svc: deps.Service, Trail: g.trail, Shares: g.shares, Metrics: g.metrics, Now: deps.Now, TraceURL: cfg.TraceURL, Draining: g.draining, Most: int64(cfg.EventsMaxClients),
	}
	operators := &operators.Handler{Outbox: deps.Outbox, Settings: deps.Settings, Keys: deps.Keys, Trail: g.trail, Log: deps.Logger}
	letters := &deadletters.Handler{Service: deps.DeadLetters, Trail: g.trail}
	topics := &topics.Handler{Mq: deps.MQ, Trail: g.trail}
	topicLetters := &deadletters.TopicHandler{Topics: topics, Trail: g.trail}
	return slices.Concat(takeIn.Routes(), documents.Routes(), tasks.Routes(), operations.Routes(), checked.Routes(), filters.Routes(), asked.Routes(), operators.Routes(), letters.Routes(), topicLetters.Routes(),
		topics.Routes(), g.serviceRoutes())
}

// sharesOf are the limits of each user. With AUTH_MODE=none everybody is one user, and there are none.
func sharesOf(cfg Config) *shares.Shares {
	if cfg.AuthMode == AuthNone {
		return shares.New(0, 0, 0)
	}
	bytes := cfg.UploadMaxBytesPerUser
	if bytes > 0 {
		bytes = max(bytes, cfg.requestLimit())
	}
	return shares.New(int64(cfg.EventsMaxPerUser), int64(cfg.UploadMaxOpenPerUser), bytes)
}

// limiterOf is the limiter to ask: the given one, or one of this process; nil: there is no limit.
func limiterOf(given ratelimit.Limiter, limit ratelimit.Limit, now func() time.Time) ratelimit.Limiter {
	switch {
	case limit.Events == 0:
		return nil
	case given != nil:
		return given
	}
	return ratelimit.NewLocal(now, limit)
}

// LoginLimit is AUTH_FAIL_LIMIT per AUTH_FAIL_WINDOW_SECONDS; it is of use only when the limit is not 0.
func (c Config) LoginLimit() ratelimit.Limit {
	return ratelimit.Limit{Events: c.AuthFailLimit, Window: time.Duration(c.AuthFailWindow) * time.Second}
}

// UploadLimit is UPLOAD_RATE_LIMIT per UPLOAD_RATE_WINDOW_SECONDS; it is of use only when the limit is not 0.
func (c Config) UploadLimit() ratelimit.Limit {
	return ratelimit.Limit{Events: c.UploadRateLimit, Window: time.Duration(c.UploadRateWindow) * time.Second}
}
