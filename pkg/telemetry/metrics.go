package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with the runtime's and the process's figures and millweir_build_info.
func NewRegistry(service, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "millweir_build_info",
		Help:        "Always 1; the labels say which build of which service runs.",
		ConstLabels: prometheus.Labels{"service": service, "version": version, "go_version": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}
