package gateway

import (
	"net/http"
	"net/netip"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

func (g *Gateway) serviceRoutes() []web.Route {
	return []web.Route{
		web.On(http.MethodGet, "/healthz", web.AccessPublic, []string{web.AnyParam}, g.healthz),
		web.On(http.MethodGet, "/readyz", web.AccessPublic, []string{web.AnyParam}, g.readyz),
		web.On(http.MethodGet, "/metrics", web.AccessMetrics, []string{web.AnyParam}, g.serveMetrics),
		web.On(http.MethodGet, "/actuator/prometheus", web.AccessMetrics, []string{web.AnyParam}, g.serveMetrics),
		web.On(http.MethodGet, "/openapi.json", web.AccessPublic, []string{web.AnyParam}, g.api.Send),
		web.On(http.MethodGet, "/docs", web.AccessPublic, []string{web.AnyParam}, g.api.SendPage),
	}
}

// newEngine puts the routes behind the middleware.
func (g *Gateway) newEngine() (*gin.Engine, error) {
	e, err := g.bareEngine()
	if err != nil {
		return nil, err
	}
	for _, r := range g.routes {
		e.Handle(r.Method, r.Path, g.answer(r))
	}
	return e, nil
}

// bareEngine is the middleware, and what is said of addresses that have no route.
func (g *Gateway) bareEngine() (*gin.Engine, error) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	e.UseRawPath = true // a base's name may hold an escaped slash
	e.UnescapePathValues = true
	if err := e.SetTrustedProxies(web.Each(g.proxies, netip.Prefix.String)); err != nil {
		return nil, err
	}
	e.Use(g.begin, g.recoverPanic, g.guardHost)
	e.NoRoute(g.plain(func(*gin.Context) error { return web.Errorf(web.CodeNotFound, "there is nothing at this address") }))
	e.NoMethod(g.plain(func(c *gin.Context) error {
		return web.Errorf(web.CodeMethodNotAllowed, "%s is not answered at this address", web.CleanMethod(c.Request.Method))
	}))
	return e, nil
}

// answer is a route's handler behind its access check and its list of parameters.
// The order matters: who asks comes first, before anything of the request is judged or read (A33).
func (g *Gateway) answer(r web.Route) gin.HandlerFunc {
	return g.plain(func(c *gin.Context) error {
		if err := g.authorize(c, r); err != nil {
			return err
		}
		if err := web.KnownParams(c, r.Query); err != nil {
			return err
		}
		return g.noted(c, r.Handle(c))
	})
}

// plain turns a handlerFunc into gin's form.
func (g *Gateway) plain(h web.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := h(c); err != nil {
			web.Fail(c, g.log, err)
		}
	}
}

func (g *Gateway) healthz(c *gin.Context) error {
	web.AllowWrite(c)
	process.HealthHandler(c.Writer, c.Request)
	return nil
}

// readyz says whether requests should come here, and what is missing when not.
// What a dependency answered stays on OPERATOR_ADDR when this address is not for one person only.
func (g *Gateway) readyz(c *gin.Context) error {
	report := process.Report{Ready: true, Missing: []string{}, Checks: []process.CheckResult{}}
	if g.deps.Readiness != nil {
		report = g.deps.Readiness.Check(c.Request.Context())
	}
	if web.Stopped(g.draining) {
		report.Ready, report.Draining = false, true
	}
	if g.cfg.AuthMode != AuthNone {
		report.Checks = slices.Clone(report.Checks)
		for i := range report.Checks {
			report.Checks[i].Error, report.Checks[i].Warning = "", ""
		}
	}
	if !report.Ready {
		return web.JSON(c, http.StatusServiceUnavailable, report)
	}
	return web.JSON(c, http.StatusOK, report)
}

func (g *Gateway) serveMetrics(c *gin.Context) error {
	if g.deps.Metrics == nil {
		return &web.Error{Code: web.CodeNotFound}
	}
	web.AllowWrite(c)
	g.deps.Metrics.ServeHTTP(c.Writer, c.Request)
	return nil
}
