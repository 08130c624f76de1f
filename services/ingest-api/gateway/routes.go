package gateway

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth"
)

// access says who may use a route.
type access int

const (
	accessPublic  access = iota // anyone
	accessRead                  // any valid key or token with the scope read; rows of its user only
	accessWrite                 // the same with the scope write
	accessInspect               // the operator role and the scope read
	accessOperate               // the operator role and the scope write
	accessMetrics               // as accessInspect, or anyone with METRICS_PUBLIC
)

// operator reports whether a route is for operators only.
func (a access) operator() bool {
	return a == accessInspect || a == accessOperate || a == accessMetrics
}

// scope is what a key or token has to be good for.
func (a access) scope() auth.Scope {
	if a == accessWrite || a == accessOperate {
		return auth.ScopeWrite
	}
	return auth.ScopeRead
}

// handlerFunc returns a request or says what went wrong; it has then written nothing.
type handlerFunc func(c *gin.Context) error

// route is one row of the table.
type route struct {
	method string
	path   string // gin's form
	access access
	query  []string // allowed query parameters; any other is 400
	handle handlerFunc
}

// routes is all that the gateway answers.
func (g *Gateway) routes() []route {
	var all []route
	all = append(all, g.documentRoutes()...)
	all = append(all, g.taskRoutes()...)
	all = append(all, g.baseRoutes()...)
	all = append(all, g.operatorRoutes()...)
	all = append(all, g.outboxRoutes()...)
	all = append(all, g.deadLetterRoutes()...)
	all = append(all, g.topicDeadLetterRoutes()...)
	all = append(all, g.mqRoutes()...)
	return append(all, g.serviceRoutes()...)
}

func (g *Gateway) documentRoutes() []route {
	const documents = "/api/knowledge/documents"
	const one = documents + "/:documentId"
	form := []string{"title", "knowledgeBase", "force"}
	return []route{
		{http.MethodPost, documents + "/upload-async", accessWrite, form, g.uploadAsync},
		{http.MethodPost, documents + "/upload", accessWrite, append([]string{"waitSeconds"}, form...), g.uploadSync},
		{http.MethodGet, documents, accessRead, append([]string{"knowledgeBase", "status", "stage", "q", "sort", "cursor", "limit"}, timeFilters...), g.listDocuments},
		{http.MethodGet, one, accessRead, nil, g.getDocument},
		{http.MethodPut, one, accessWrite, []string{"title", "force"}, g.putDocument},
		{http.MethodDelete, one, accessWrite, nil, g.deleteDocument},
		{http.MethodGet, one + "/segments", accessRead, []string{"cursor", "limit"}, g.listSegments},
		{http.MethodPost, "/api/knowledge/search", accessRead, nil, g.search},
	}
}

func (g *Gateway) taskRoutes() []route {
	const tasks = "/api/knowledge/tasks"
	const one = tasks + "/:taskId"
	return []route{
		{http.MethodGet, tasks, accessRead, taskListParams(), g.listTasks},
		{http.MethodGet, one, accessRead, nil, g.getTask},
		{http.MethodGet, one + "/events", accessRead, nil, g.taskEvents},
		{http.MethodGet, one + "/transitions", accessRead, []string{"cursor", "limit"}, g.listTransitions},
		{http.MethodGet, one + "/explain", accessRead, nil, g.explainTask},
		{http.MethodPost, one + "/retry", accessWrite, nil, g.retryTask},
		{http.MethodPost, one + "/cancel", accessWrite, nil, g.cancelTask},
	}
}

func (g *Gateway) baseRoutes() []route {
	const bases = "/api/knowledge/bases"
	const one = bases + "/:base"
	return []route{
		{http.MethodGet, bases, accessRead, append([]string{"knowledgeBase", "status", "stage", "q", "sort", "cursor", "limit"}, timeFilters...), g.listBases},
		{http.MethodPost, bases, accessWrite, nil, g.createBase},
		{http.MethodGet, one, accessRead, nil, g.getBase},
		{http.MethodDelete, one, accessWrite, []string{"cascade"}, g.deleteBase},
		{http.MethodGet, one + "/summary", accessRead, nil, g.baseSummary},
	}
}

func (g *Gateway) operatorRoutes() []route {
	const tasks = "/internal/tasks"
	const one = tasks + "/:taskId"
	return []route{
		{http.MethodGet, tasks + "/stats", accessInspect, nil, g.taskStats},
		{http.MethodGet, tasks + "/suspended", accessInspect, []string{"cursor", "limit"}, g.suspendedTasks},
		{http.MethodGet, one, accessInspect, nil, g.inspectTask},
		{http.MethodDelete, one, accessOperate, nil, g.dropTask},
		{http.MethodPost, one + "/suspend", accessOperate, nil, g.suspendTask},
		{http.MethodPost, one + "/resume", accessOperate, nil, g.resumeTask},
		{http.MethodGet, "/internal/audit", accessInspect, []string{"action", "actor", "cursor", "limit"}, g.listAudit},
		{http.MethodGet, "/internal/keys", accessInspect, []string{"cursor", "limit"}, g.listKeys},
		{http.MethodPost, "/internal/keys", accessOperate, nil, g.createKey},
		{http.MethodDelete, "/internal/keys/:keyId", accessOperate, nil, g.revokeKey},
	}
}

func (g *Gateway) serviceRoutes() []route {
	return []route{
		{http.MethodGet, "/healthz", accessPublic, []string{anyParam}, g.healthz},
		{http.MethodGet, "/readyz", accessPublic, []string{anyParam}, g.readyz},
		{http.MethodGet, "/metrics", accessMetrics, []string{anyParam}, g.serveMetrics},
		{http.MethodGet, "/actuator/prometheus", accessMetrics, []string{anyParam}, g.serveMetrics},
		{http.MethodGet, "/openapi.json", accessPublic, []string{anyParam}, g.openAPI},
		{http.MethodGet, "/docs", accessPublic, []string{anyParam}, g.docs},
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
			g.fail(c, err)
		}
	}
}
