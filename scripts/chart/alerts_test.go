package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	alertsFile = "deploy/charts/millweir/files/alerts.yaml"
	looked     = 2 * time.Hour // after the series of alertCases began
)

// alertCases are figures, one a minute, that each alert must fire on, and figures of an installation that works, on which none may.
var alertCases = map[string]string{
	"MillweirDurabilityDegraded": `durability_degraded{store="task"} 1x120`,
	"MillweirRuleBroken":         `ingest_invariant_violations{class="I7"} 2x120`,
	"MillweirWorkWaits":          `ingest_oldest_due_age_seconds 0+10x120`,
	"MillweirSlotsLost":          `ingest_slots_lost{instance="a"} 1x120`,
	"MillweirTasksDie":           `ingest_task_process_total{result="dead",instance="a"} 0+1x120`,
	"MillweirWorkersDie":         `ingest_takeover_total{instance="a"} 0+2x120`,
	"MillweirEventsWait":         `outbox_oldest_age_seconds 0+10x120`,
	"MillweirPartitionsUnowned":  `streammq_partitions_unowned{topic="t",group="g"} 1x120`,
	"MillweirCopiesLate":         `mirror_lag_seconds{instance="a"} 0+10x120`,
	"MillweirNoMirrorActs":       `millweir_build_info{service="stream-mirror",instance="b"} 1x120`,
	"MillweirQueueLacksMember":   `rabbit_quorum_members{state="follower",instance="a"} 1x120`,
	"MillweirChatsUnanswered":    `telegram_oldest_unanswered_seconds 0+10x120`,
	"MillweirRequestsFail":       `ingest_api_request_seconds_count{status_class="5xx",instance="a"} 0+9x120`,
}

const healthy = `	durability_degraded{store="task",instance="a"} 0x120
	durability_degraded{store="stream",instance="a"} 1x120
	ingest_invariant_violations{class="I1",instance="a"} 0x120
	ingest_oldest_due_age_seconds{instance="a"} 20x120
	ingest_slots_lost{instance="z"} 0x120
	ingest_task_process_total{result="succeeded",instance="z"} 0+15x120
	ingest_task_process_total{result="dead",instance="z"} 0+0.1x120
	ingest_takeover_total{instance="z"} 0+0.2x120
	outbox_oldest_age_seconds{instance="a"} 1x120
	streammq_partitions_unowned{topic="u",group="g"} 0x120
	telegram_oldest_unanswered_seconds{instance="a"} 30x120
	ingest_api_request_seconds_count{status_class="2xx",instance="z"} 0+100x120
	ingest_api_request_seconds_count{status_class="5xx",instance="z"} 0+1x120
`

// mirrored are figures of an installation with copies, which few have; their alerts say nothing where none are.
const mirrored = `	millweir_build_info{service="stream-mirror",instance="x"} 1x120
	millweir_build_info{service="stream-mirror",instance="y"} 1x120
	mirror_lag_seconds{instance="x"} 1x120
	rabbit_quorum_members{state="leader",instance="x"} 1x120
	rabbit_quorum_members{state="follower",instance="x"} 2x120
`

// alerts are the rules of the file.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(root, alertsFile), false, model.UTF8Validation, parser.NewParser(parser.Options{}), nil)
	require.Empty(t, errs)
	require.Len(t, groups.Groups, 1)
	return groups.Groups[0].Rules
}

// firing are the alerts whose condition is true of figures.
func firing(t *testing.T, figures string) (names []string) {
	t.Helper()
	query := prometheusOf(t, figures)
	for _, rule := range alerts(t) {
		if query(rule.Expr) > 0 {
			names = append(names, rule.Alert)
		}
	}
	return names
}

// prometheusOf returns what counts the series that an expression is of figures, at the time looked.
func prometheusOf(t *testing.T, figures string) func(expr string) int {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n"+figures)
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery)
	return func(expr string) int {
		q, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(looked))
		require.NoError(t, err, expr)
		found, err := q.Exec(t.Context()).Vector()
		require.NoError(t, err, expr)
		return len(found)
	}
}

// TestEachAlertFiresOnItsFault: and none while all is well, with and without what few installations have.
func TestEachAlertFiresOnItsFault(t *testing.T) {
	require.Empty(t, firing(t, healthy))
	require.Empty(t, firing(t, healthy+mirrored))
	for name, fault := range alertCases {
		figures := healthy + "\t" + fault + "\n"
		require.Equal(t, []string{name}, firing(t, figures), name)
	}
	for _, rule := range alerts(t) {
		require.Contains(t, alertCases, rule.Alert)
	}
}

var (
	metricName = regexp.MustCompile(`[a-z]+_[a-z_]+`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// contractMetrics is the contract's list of metrics, with the short forms written out.
func contractMetrics(t *testing.T) string {
	t.Helper()
	contract, err := os.ReadFile(filepath.Join(root, "deploy/docs/contract.md"))
	require.NoError(t, err)
	_, metrics, found := strings.Cut(string(contract), "\n## 8. Metrics\n")
	require.True(t, found)
	streammq := regexp.MustCompile(`streammq_\{([a-z_,]+)\}`)
	for _, list := range streammq.FindAllStringSubmatch(metrics, -1) {
		for name := range strings.SplitSeq(list[1], ",") {
			metrics += " streammq_" + name
		}
	}
	return metrics
}

// requireKnown fails for an expression that cannot be read, or that names what is not in a list of metrics.
func requireKnown(t *testing.T, metrics, text, where string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	require.NoError(t, err, where)
	for _, selectors := range parser.ExtractSelectors(expr) {
		i := slices.IndexFunc(selectors, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel })
		require.GreaterOrEqual(t, i, 0)
		name := strings.TrimSuffix(strings.TrimSuffix(selectors[i].Value, "_count"), "_bucket")
		require.Regexp(t, metricName, name)
		require.Regexp(t, `\b`+name+`\b`, metrics, where)
	}
}

// TestAlertsNameWhatIsThere: each metric is one of the contract's, each page and heading exists.
func TestAlertsNameWhatIsThere(t *testing.T) {
	metrics := contractMetrics(t)
	for _, rule := range alerts(t) {
		requireKnown(t, metrics, rule.Expr, rule.Alert)
		page, anchor, _ := strings.Cut(rule.Annotations["runbook"], "#")
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err, rule.Alert)
		var anchors []string
		for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
			anchors = append(anchors, strings.ReplaceAll(strings.NewReplacer(",", "", "'", "", "`", "").Replace(strings.ToLower(h[1])), " ", "-"))
		}
		if anchor != "" {
			require.Contains(t, anchors, anchor, rule.Alert)
		}
	}
}

// TestAlertsAreARule: the PrometheusRule has the file's groups.
func TestAlertsAreARule(t *testing.T) {
	all := objects(t, "mill", minimal, "metrics.rules.enabled=true")
	i := slices.IndexFunc(all, func(o runtime.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "PrometheusRule" })
	require.GreaterOrEqual(t, i, 0)
	made, err := yaml.Marshal(all[i].(*prometheusRule).Spec)
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join(root, alertsFile))
	require.NoError(t, err)
	require.YAMLEq(t, string(want), string(made))
}
