package extract

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

var (
	layerDesc = prometheus.NewDesc("ingest_extract_sandbox_layer",
		"1 while children that read documents are confined by the layer, 0 while not or before the first child.", []string{"layer"}, nil)
	childrenDesc = prometheus.NewDesc("ingest_extract_children", "Child processes alive that read documents.", nil, nil)
	startedDesc  = prometheus.NewDesc("ingest_extract_children_started_total", "Child processes started to read documents.", nil, nil)
	killedDesc   = prometheus.NewDesc("ingest_extract_children_killed_total", "Child processes killed over a limit or at a stop.", nil, nil)
	peakDesc     = prometheus.NewDesc("ingest_extract_child_peak_bytes", "Largest resident size that any child reached.", nil, nil)
)

// Collector shows the pool's children and what confines them; a process registers it once.
func (p *Pool) Collector() prometheus.Collector {
	return prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		s := p.Stats()
		for name, active := range map[sandbox.Layer]bool{sandbox.Landlock: s.Landlock, sandbox.Seccomp: s.Seccomp, sandbox.Namespaces: s.Namespaces} {
			value := 0.0
			if active {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(layerDesc, prometheus.GaugeValue, value, string(name))
		}
		out <- prometheus.MustNewConstMetric(childrenDesc, prometheus.GaugeValue, float64(s.Live))
		out <- prometheus.MustNewConstMetric(startedDesc, prometheus.CounterValue, float64(s.Started))
		out <- prometheus.MustNewConstMetric(killedDesc, prometheus.CounterValue, float64(s.Killed))
		out <- prometheus.MustNewConstMetric(peakDesc, prometheus.GaugeValue, float64(s.PeakBytes))
	})
}
