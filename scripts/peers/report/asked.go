package report

import (
	"slices"

	"github.com/millweir/millweir/scripts/peers/rival"
)

// Relation is how a measured figure must stand to the one asked for.
type Relation string

// The relations.
const (
	AtLeast Relation = "≥"
	AtMost  Relation = "≤"
	Told    Relation = "" // nothing is asked
)

// Figure is one figure beside the one asked for.
type Figure struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"` // "×" or "ms"
	Relation Relation `json:"relation"`
	Asked    float64  `json:"asked"`
	Measured Spread   `json:"measured"` // of ratios: inside each repetition
	ByCPU    Spread   `json:"byCPU"`    // of rates: the same ratio of tasks per second of processor time
	Met      bool     `json:"met"`      // by the median of Measured
}

// Names of the systems in results.
const (
	millweir         = "millweir"
	millweirAlways   = "millweir-always"
	millweirPostgres = "millweir-postgres"
	river            = "river"
	forwarder        = "relay-watermill"
	streamMQ         = "streammq"
)

// ask is a figure to be judged; theirs empty: the figure itself, else its ratio.
type ask struct {
	name         string
	of           Value
	byCPU        Value // nil: none
	ours, theirs string
	relation     Relation
	asked        float64
}

var (
	drain       = Rate(rival.PhaseDrain)
	drainCPU    = CPU(rival.PhaseDrain)
	submit      = Rate(rival.PhaseSubmit)
	submitCPU   = CPU(rival.PhaseSubmit)
	combined    = Combined(Rate)
	combinedCPU = Combined(CPU)
	commitP50   = Latency(func(r rival.Reply) float64 { return r.CommitP50 })
	commitP99   = Latency(func(r rival.Reply) float64 { return r.CommitP99 })
	sentP50     = Latency(func(r rival.Reply) float64 { return r.SentP50 })
	sentP99     = Latency(func(r rival.Reply) float64 { return r.SentP99 })
)

// asks are the goals of Millweir with its full audit, fences, leases and heartbeats.
var asks = []ask{
	{"drain ÷ River", drain, drainCPU, millweir, river, AtLeast, 1.5},
	{"drain on Postgres ÷ River", drain, drainCPU, millweirPostgres, river, AtLeast, 1.2},
	{"bulk submit on Postgres ÷ River's COPY", submit, submitCPU, millweirPostgres, river, AtLeast, 0.8},
	{"drain ÷ watermill-redisstream", drain, drainCPU, millweir, "watermill-redisstream", AtLeast, 1.3},
	{"drain ÷ BullMQ", drain, drainCPU, millweir, "bullmq", AtLeast, 1.7},
	{"drain ÷ asynq", drain, drainCPU, millweir, "asynq", AtLeast, 3.5},
	{"drain ÷ asynq, appendfsync always", drain, drainCPU, millweirAlways, "asynq-always", AtLeast, 15},
	{"drain ÷ watermill-sql", drain, drainCPU, millweir, "watermill-sql", AtLeast, 3},
	{"drain ÷ taskiq", drain, drainCPU, millweir, "taskiq", AtLeast, 10},
	{"drain ÷ row by row with 16 workers", drain, drainCPU, millweir, "naive16", AtLeast, 20},
	{"submit + drain ÷ raw cycle on our tables", combined, combinedCPU, millweir, "raw-cycle", AtLeast, 0.75},
	{"drain ÷ its raw statements on our tables", drain, drainCPU, millweir, "raw-cycle", Told, 0},
	{"submit + drain ÷ raw cycle on the least columns", combined, combinedCPU, millweir, "raw-cycle-enum", Told, 0},
	{"commit → handler start, p50", commitP50, nil, millweir, "", AtMost, 2.5},
	{"commit → handler start, p99", commitP99, nil, millweir, "", AtMost, 8},
	{"commit → handler start, p50 ÷ River", commitP50, nil, millweir, river, AtMost, 0.2},
	{"streammq drain ÷ watermill-redisstream", drain, drainCPU, streamMQ, "streammq-watermill", AtLeast, 3},
	{"streammq drain ÷ FastStream, batches", drain, drainCPU, streamMQ, "streammq-faststream", AtLeast, 2},
	{"streammq, time to send → handler start, p50", sentP50, nil, streamMQ, "", Told, 0},
	{"streammq, time to send → handler start, p99", sentP99, nil, streamMQ, "", Told, 0},
	{"relay, batches of 500 ÷ watermill's forwarder", drain, drainCPU, "relay-500", forwarder, AtLeast, 50},
	{"relay, default batches of 20 ÷ watermill's forwarder", drain, drainCPU, "relay", forwarder, Told, 0},
}

// Judge fills Asked, as far as the systems took part in the run; those that failed did.
func (r *Report) Judge() {
	r.Asked = nil
	took := r.systems()
	for _, a := range asks {
		if !slices.Contains(took, a.ours) || (a.theirs != "" && !slices.Contains(took, a.theirs)) {
			continue
		}
		f := Figure{Name: a.name, Relation: a.relation, Asked: a.asked}
		if a.theirs == "" {
			f.Unit, f.Measured = "ms", r.Spread(a.ours, a.of)
		} else {
			f.Unit, f.Measured = "×", r.Ratio(a.of, a.ours, a.theirs)
		}
		if a.byCPU != nil {
			f.ByCPU = r.Ratio(a.byCPU, a.ours, a.theirs)
		}
		f.Met = f.Measured.N > 0 && met(f.Relation, f.Measured.Median, f.Asked)
		r.Asked = append(r.Asked, f)
	}
}

func met(relation Relation, measured, asked float64) bool {
	switch relation {
	case AtLeast:
		return measured >= asked
	case AtMost:
		return measured <= asked
	case Told:
	}
	return true
}
