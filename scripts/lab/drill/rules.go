package drill

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
)

// always are the rules that every drill must have judged.
var always = []string{"I1", "I2", "I3", "I4", "I5", "I7", "I8", "I11", "I12", "I23", "I36", "L1"}

// loaded are those that a drill with a load and an echo must have judged besides.
var loaded = []string{"I13", "I14", "I15", "I17", "I20", "I24", "I25", "I26", "I27", "I28", "I29", "I30", "I34", "I35", "L4", "L5"}

// onOutbox are those of its events, onKafka those of a drill on Kafka alone besides.
var (
	onOutbox = []string{"I16", "L3"}
	onKafka  = append([]string{"I15", "I21", "L5"}, onOutbox...)
)

// onTopic are those of a drill on partitions; the all-in-one has its Redis inside, where nobody can look.
var (
	onTopic   = []string{"I31", "I32", "I33"}
	noOutside = []string{"streammq-kill9-dev"}
)

// must are the rules that a drill is made for.
var must = map[string][]string{
	"main-reproduction":            {"I9", "I18"},
	"main-kill9-worker":            append(loaded, "I6"),
	"main-kill9-postgres":          append(loaded, "I6"),
	"main-kill9-dev":               {"I6", "I14", "I25"},
	"main-kill9-each":              append(loaded, "I6"),
	"main-kill9-all":               append(loaded, "I6"),
	"main-stop-worker":             append(loaded, "I6"),
	"main-stop-reclaimer":          append(loaded, "I9", "I10"),
	"main-zombie":                  {"I6"},
	"main-poison":                  {"I6", "I18"},
	"main-commit-unknown":          loaded,
	"main-defaults":                append(loaded, "I6"),
	"main-full-load":               {"I6", "I13", "I15", "I17", "I25", "L4", "L5"},
	"kafka-defaults":               append([]string{"I6", "I25"}, onKafka...),
	"kafka-full-load":              append([]string{"I6", "I25"}, onKafka...),
	"main-redis-loss":              {"I15", "I25", "L5", "L6"},
	"main-redis-flush":             {"I15", "I25", "L5", "L6"},
	"main-embed-faults":            append(loaded, "I9", "I10"),
	"main-sse":                     append(loaded, "I9", "I10"),
	"main-chroma-faults":           append(loaded, "I9", "I10"),
	"main-db-restart":              {"I25", "L5"},
	"main-commit-unknown-postgres": loaded,
	"kafka-reproduction":           onKafka,
	"kafka-broker":                 append([]string{"I25"}, onKafka...),
	"kafka-kill9":                  append([]string{"I6", "I25"}, onKafka...),
	"kafka-two-relays":             onKafka,
	"kafka-rebalance":              append([]string{"I25"}, onKafka...),
	"kafka-loss":                   append([]string{"I25"}, onKafka...),
	"kafka-switch":                 onOutbox,
}

// proved returns an error that names the rules of a drill that judged nothing; a drill that failed has said why.
func proved(n *stage.Notebook, drill string, passed bool) error {
	sum := n.Sum()
	if !passed {
		return nil
	}
	if len(sum) == 0 {
		return errors.New("the checker was not asked")
	}
	scene, wanted := drill, slices.Clone(always)
	if same, ok := strings.CutPrefix(drill, "streammq-"); ok {
		scene = "main-" + same
		if !slices.Contains(noOutside, drill) {
			wanted = append(wanted, onTopic...)
		}
	}
	return sum.RequireJudged(append(wanted, must[scene]...)...)
}

// summarize prints how many events each rule judged over all drills; every applicable one must have judged something.
func summarize(n *stage.Notebook, out io.Writer) error {
	var words []string
	sum := n.Sum()
	for _, id := range append(fsck.Applicable(), onTopic...) {
		words = append(words, fmt.Sprintf("%s %d", id, sum.Rule(id).Judged))
	}
	_, _ = fmt.Fprintf(out, "RULES judged, all drills together: %s\n", strings.Join(words, " · "))
	return sum.RequireJudged(fsck.Applicable()...)
}
