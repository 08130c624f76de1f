package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const bearerPrefix = "bearer "

// begin gives the request an id, a span and the headers of every answer, and counts it in the end.
func (g *Gateway) begin(c *gin.Context) {
	start := g.deps.Now()
	r := &web.Request{ID: requestID(c.Request.Header.Get("X-Request-Id")), TLS: c.Request.TLS != nil}
	if g.trusts(c.RemoteIP()) {
		r.TLS = r.TLS || c.Request.Header.Get("X-Forwarded-Proto") == "https"
		r.Prefix = prefixOf(c.Request.Header)
	}
	c.Set(web.RequestKey, r)
	secure(c.Writer.Header())
	c.Writer.Header().Set("X-Request-Id", r.ID)
	// A deadline of an earlier request on this connection must not end this one.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{})
	end := g.startSpan(c, r)
	defer func() {
		took := g.deps.Now().Sub(start)
		end(c.Writer.Status())
		g.metrics.Observe(c.FullPath(), web.CleanMethod(c.Request.Method), c.Writer.Status(), took, r.Streaming)
		g.log.LogAttrs(c.Request.Context(), slog.LevelDebug, "gateway: answered",
			slog.String("request_id", r.ID), slog.String("method", web.CleanMethod(c.Request.Method)), slog.String("route", c.FullPath()),
			slog.Int("status", c.Writer.Status()), slog.Duration("took", took),
			slog.String("user_id", r.Principal.UserID), slog.String("client", c.ClientIP()))
	}()
	c.Next()
}

// trusts reports whether an address is one of TRUSTED_PROXIES.
func (g *Gateway) trusts(ip string) bool {
	addr, err := netip.ParseAddr(ip)
	return err == nil && slices.ContainsFunc(g.proxies, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
}

// prefixForm is what a proxy may say of the path before ours: segments of harmless characters.
var prefixForm = regexp.MustCompile(`^(/[0-9A-Za-z_~-][0-9A-Za-z._~-]{0,63}){1,8}$`)

// prefixOf is the path that a proxy says it has taken away before ours. One of another form is not believed.
func prefixOf(h http.Header) string {
	said := strings.TrimSuffix(h.Get("X-Forwarded-Prefix"), "/")
	if !prefixForm.MatchString(said) {
		return ""
	}
	return said
}

var harmlessRequestID = regexp.MustCompile(`^[0-9A-Za-z._-]{1,128}$`)

// requestID takes a caller's id when it is harmless and makes one otherwise.
func requestID(given string) string {
	if harmlessRequestID.MatchString(given) {
		return given
	}
	return strings.ToLower(rand.Text())
}

// secure sets the headers that no answer goes without.
func secure(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// recoverPanic returns 500 for a panic and logs its stack; the connection's own abort goes on.
func (g *Gateway) recoverPanic(c *gin.Context) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(v)
		}
		g.log.LogAttrs(c.Request.Context(), slog.LevelError, "gateway: panic",
			slog.String("request_id", web.RequestOf(c).ID), slog.String("route", c.FullPath()),
			slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
		web.Fail(c, g.log, &web.Error{Code: web.CodeInternal, Cause: fmt.Errorf("panic: %v", v)})
		c.Abort()
	}()
	c.Next()
}

// guardHost refuses foreign Host names when nobody has to prove who he is:
// a web page that makes its own name point to 127.0.0.1 (DNS rebinding) would be the operator otherwise.
func (g *Gateway) guardHost(c *gin.Context) {
	if path := c.Request.URL.Path; g.cfg.AuthMode != AuthNone || path == "/healthz" || path == "/readyz" {
		return
	}
	host := c.Request.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !loopback(strings.ToLower(strings.Trim(host, "[]"))) {
		web.Fail(c, g.log, &web.Error{Code: web.CodeHostNotAllowed})
		c.Abort()
	}
}

// guardOrigin refuses changes that a browser sends for another site (A32); programs send neither Origin nor Sec-Fetch-Site.
func (g *Gateway) guardOrigin(next http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := guard.Check(r); err != nil {
			id := requestID(r.Header.Get("X-Request-Id"))
			secure(w.Header())
			w.Header().Set("X-Request-Id", id)
			w.Header().Set("Connection", "close")
			web.WriteProblem(w, web.ProblemOf(&web.Error{Code: web.CodeCrossOrigin, Cause: err}, id))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorize finds out who asks and whether the route is for them.
func (g *Gateway) authorize(c *gin.Context, r web.Route) error {
	a := r.Access
	if a == web.AccessPublic || a == web.AccessMetrics && g.cfg.MetricsPublic {
		return nil
	}
	who, err := g.principal(c)
	if err != nil {
		return err
	}
	web.RequestOf(c).Principal = who
	switch {
	case a.Operator() && !who.Operator():
		g.denied(c, "operator role")
		return &web.Error{Code: web.CodeForbidden}
	case !who.May(a.Scope()):
		g.denied(c, "scope "+string(a.Scope()))
		return web.Errorf(web.CodeScope, "this address needs a key or token with the scope %s", a.Scope())
	}
	if err := web.CheckVeil(c, g.deps.Now()); err != nil {
		return g.noted(c, err)
	}
	return g.noted(c, web.CheckBase(c, g.deps.Service, r.Base))
}

// noted notes the refusal of a key that is limited to other knowledge bases, or to states.
func (g *Gateway) noted(c *gin.Context, err error) error {
	var refused *web.Error
	if errors.As(err, &refused) && refused.Code == web.CodeScope {
		missing := "knowledge base"
		if web.Veiled(c) && refused.Parameter != "" {
			missing = "scope read"
		}
		g.denied(c, missing)
	}
	return err
}

// denied notes that a valid caller asked for what is not his to do; missing is what he lacks.
func (g *Gateway) denied(c *gin.Context, missing string) {
	who := web.Source(c)
	g.trail.Tried(audit.Event{Action: audit.AccessDenied, Source: who, Target: web.CleanMethod(c.Request.Method) + " " + c.FullPath(), Detail: "lacks " + missing})
	g.log.LogAttrs(c.Request.Context(), slog.LevelWarn, "gateway: access denied",
		slog.String("request_id", who.RequestID), slog.String("user_id", who.Actor), slog.String("key_id", who.KeyID),
		slog.String("route", c.FullPath()), slog.String("client", who.IP), slog.String("missing", missing))
}

// principal is who asks, by the mode.
func (g *Gateway) principal(c *gin.Context) (auth.Principal, error) {
	if g.cfg.AuthMode == AuthNone {
		return auth.Local(), nil
	}
	if secret, of := c.Request.Context().Value(sessionKey{}).(string); of {
		return g.session(c, secret)
	}
	header := c.Request.Header.Get("Authorization")
	if len(header) <= len(bearerPrefix) || !strings.EqualFold(header[:len(bearerPrefix)], bearerPrefix) {
		return auth.Principal{}, &web.Error{Code: web.CodeUnauthenticated}
	}
	return g.login(c, strings.TrimSpace(header[len(bearerPrefix):]))
}

// startSpan continues the caller's W3C trace with a server span, or passes its context on when nothing records.
// Baggage is not read: nobody here needs it, and its size is the caller's choice (A35).
func (g *Gateway) startSpan(c *gin.Context, r *web.Request) (end func(status int)) {
	w3c := propagation.TraceContext{}
	ctx := w3c.Extract(c.Request.Context(), propagation.HeaderCarrier(c.Request.Header))
	method, route := web.CleanMethod(c.Request.Method), c.FullPath() // no route: nothing is at this address
	ctx, span := g.tracer.Start(ctx, strings.TrimSpace(method+" "+route), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("http.request.method", method),
			attribute.String("http.route", route),
			attribute.String("millweir.request_id", r.ID)))
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	r.Parent = carrier.Get("traceparent")
	c.Request = c.Request.WithContext(ctx)
	return func(status int) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(status))
		}
		span.End()
	}
}
