package gateway

import (
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"
)

// routes is all that the gateway answers.
func (g *Gateway) routes() []route {
	return slices.Concat(g.uploads.routes(), g.documents.routes(), g.tasks.routes(), g.operators.routes(), g.deadLetters.routes(),
		g.topicDeadLetters.routes(), g.topics.routes(), g.serviceRoutes())
}

func (g *Gateway) serviceRoutes() []route {
	return []route{
		{http.MethodGet, "/healthz", accessPublic, []string{anyParam}, g.healthz},
		{http.MethodGet, "/readyz", accessPublic, []string{anyParam}, g.readyz},
		{http.MethodGet, "/metrics", accessMetrics, []string{anyParam}, g.serveMetrics},
		{http.MethodGet, "/actuator/prometheus", accessMetrics, []string{anyParam}, g.serveMetrics},
		{http.MethodGet, "/openapi.json", accessPublic, []string{anyParam}, g.api.send},
		{http.MethodGet, "/docs", accessPublic, []string{anyParam}, g.api.sendPage},
	}
}

// newEngine puts the routes behind the middleware.
func (g *Gateway) newEngine() (*gin.Engine, error) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	e.UseRawPath = true // a base's name may hold an escaped slash
	e.UnescapePathValues = true
	proxies, err := g.cfg.proxies()
	if err != nil {
		return nil, err
	}
	if err := e.SetTrustedProxies(proxies); err != nil {
		return nil, err
	}
	e.Use(g.begin, g.recoverPanic, g.guardHost)
	for _, r := range g.routes() {
		e.Handle(r.method, r.path, g.answer(r))
	}
	e.NoRoute(g.plain(func(*gin.Context) error { return problemf(codeNotFound, "there is nothing at this address") }))
	e.NoMethod(g.plain(func(c *gin.Context) error {
		return problemf(codeMethodNotAllowed, "%s is not answered at this address", cleanMethod(c.Request.Method))
	}))
	return e, nil
}

// answer is a route's handler behind its access check and its list of parameters.
// The order matters: who asks comes first, before anything of the request is judged or read (A33).
func (g *Gateway) answer(r route) gin.HandlerFunc {
	return g.plain(func(c *gin.Context) error {
		if err := g.authorize(c, r.access); err != nil {
			return err
		}
		if err := knownParams(c, r.query); err != nil {
			return err
		}
		return r.handle(c)
	})
}

// plain turns a handlerFunc into gin's form.
func (g *Gateway) plain(h handlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := h(c); err != nil {
			fail(c, g.log, err)
		}
	}
}
