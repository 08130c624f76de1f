package gateway

import (
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

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
