package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const dashboardFile = "deploy/charts/millweir/files/dashboard.json"

var shownLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// shown are figures that healthy lacks, of an installation whose Kafka and audit stream are used and whose rules are broken.
const shown = `	ingest_invariant_violations{class="I2",instance="a"} 1x120
	ingest_task_process_seconds_bucket{le="1",instance="a"} 0+5x120
	ingest_task_process_seconds_bucket{le="+Inf",instance="a"} 0+6x120
	ingest_stage_seconds_bucket{le="1",stage="embed",instance="a"} 0+5x120
	ingest_stage_seconds_bucket{le="+Inf",stage="embed",instance="a"} 0+6x120
	ingest_api_request_seconds_bucket{le="1",route="/x",instance="a"} 0+5x120
	ingest_api_request_seconds_bucket{le="+Inf",route="/x",instance="a"} 0+6x120
	ingest_due_work{instance="a"} 1x120
	queue_length{instance="a"} 1x120
	retry_length{instance="a"} 1x120
	suspended_length{instance="a"} 1x120
	ingest_task_handed_back_total{instance="a"} 0+1x120
	ingest_task_repromised_total{instance="a"} 0+1x120
	ingest_api_uploads_total{result="accepted",instance="a"} 0+1x120
	ingest_api_rate_limited_total{instance="a"} 0+1x120
	ingest_stream_length{stream="s",instance="a"} 1x120
	ingest_stream_pending{stream="s",group="g",instance="a"} 1x120
	ingest_kafka_lag{topic="t",group="g",partition="0",instance="a"} 1x120
	outbox_backlog{instance="a"} 1x120
	streammq_lag{topic="t",group="g",instance="a"} 1x120
	mirror_audit_lag_seconds{instance="x"} 1x120
	process_resident_memory_bytes{job="j",instance="x"} 1x120
	process_resident_memory_bytes{job="j",instance="other"} 1x120
	ingest_extract_child_peak_bytes{instance="a"} 1x120
`

// TestDashboardShowsWhatIsThere: each query is of metrics of the contract, finds them, and keeps the labels that its legend shows; each
// panel has a place of its own.
func TestDashboardShowsWhatIsThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, dashboardFile))
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			ID          int
			Title, Type string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	metrics := contractMetrics(t) + " process_resident_memory_bytes"
	query := prometheusOf(t, healthy+mirrored+shown)
	taken, ids, queries := map[[2]int]string{}, map[int]bool{}, 0
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Less(t, x, 24, p.Title)
				require.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		require.Equal(t, p.Type == "row", len(p.Targets) == 0, p.Title)
		for _, target := range p.Targets {
			queries++
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			requireKnown(t, metrics, expr, p.Title)
			require.Positive(t, query(expr), expr)
			for _, label := range shownLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Regexp(t, `(by|group_left) \((\w+, )*`+label[1]+`(, \w+)*\)`, expr, p.Title)
			}
		}
	}
	require.Greater(t, queries, 20)
}

// TestDashboardIsFoundByGrafana: the ConfigMap has the file, and the label that the sidecar selects by unless it is told another.
func TestDashboardIsFoundByGrafana(t *testing.T) {
	all := objects(t, "mill", minimal, "metrics.dashboard.enabled=true")
	i := slices.IndexFunc(all, func(o runtime.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "ConfigMap" })
	require.GreaterOrEqual(t, i, 0)
	made := all[i].(*corev1.ConfigMap)
	require.Equal(t, "1", made.Labels["grafana_dashboard"])
	text, err := os.ReadFile(filepath.Join(root, dashboardFile))
	require.NoError(t, err)
	require.JSONEq(t, string(text), made.Data["millweir.json"])
}
