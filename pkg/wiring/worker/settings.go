package worker

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/split"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/queue"
)

// maxMS bounds every setting in milliseconds: a year.
const maxMS = 365 * 24 * 3600 * 1000

// Work says how a process runs tasks and what it sweeps.
type Work struct {
	Concurrency    int    `envconfig:"INGEST_WORKER_CONCURRENCY" default:"0" allowed:"0..4096" desc:"tasks that run at once; 0: 64, and up to 1024 in a backlog of short tasks"`
	Roads          string `envconfig:"STREAM_WORKER_ROADS" default:"documents,workflows" desc:"which streams stream-worker reads: documents, workflows or both; each needs a reader somewhere"`
	Recovery       bool   `envconfig:"INGEST_WORKER_RECOVERY" default:"true" desc:"workers also run due retries and takeovers (a reclaimer always does)"`
	SweepMS        int    `envconfig:"INGEST_SWEEP_INTERVAL_MS" default:"2000" allowed:"50..3600000" desc:"pause between two sweeps for lost deliveries"`
	ReclaimEnabled bool   `envconfig:"INGEST_REDIS_RECLAIM_ENABLED" default:"true" desc:"settle deliveries that were read and never acknowledged"`
	ReclaimMS      int    `envconfig:"INGEST_REDIS_RECLAIM_INTERVAL_MS" default:"5000" allowed:"50..31536000000" desc:"pause between two settlings"`
	ReclaimIdleMS  int    `envconfig:"INGEST_REDIS_RECLAIM_IDLE_MS" default:"600000" allowed:"0..31536000000" desc:"how long a delivery is left alone before it is settled"`
	ReclaimBatch   int    `envconfig:"INGEST_REDIS_RECLAIM_BATCH_SIZE" default:"20" allowed:"1..10000" desc:"deliveries of one settling command"`
	PinMaxMS       int    `envconfig:"INGEST_STREAM_PIN_MAX_MS" default:"900000" allowed:"1000..31536000000" desc:"how long a waiting retry may hold the stream's trimming back"`
	StallMS        string `envconfig:"INGEST_STAGE_STALL_MS" default:"none=300000" desc:"how long a stage may stand still: one number, or stage=ms,… (none: all others)"`
	ZombieMax      int    `envconfig:"ZOMBIE_MAX_PENDING" default:"0" allowed:"0..1000" desc:"pending deliveries that a removed consumer may have; they are moved, never lost"`
	ZombieIdleMS   int    `envconfig:"ZOMBIE_MIN_IDLE_MS" default:"259200000" allowed:"0..31536000000" desc:"idle time after which a consumer without heartbeat is removed"`
	ZombieMS       int    `envconfig:"ZOMBIE_INTERVAL_MS" default:"600000" allowed:"1000..31536000000" desc:"pause between two looks for such consumers"`
	ZombieDryRun   bool   `envconfig:"ZOMBIE_DRY_RUN" default:"false" desc:"only log which consumers would be removed"`
	StopGraceMS    int    `envconfig:"INGEST_STOP_GRACE_MS" default:"10000" allowed:"0..3600000" desc:"how long running tasks may still end at a stop"`
	CheckMS        int    `envconfig:"INGEST_CHECK_INTERVAL_MS" default:"60000" allowed:"0..86400000" desc:"pause between two checks of a sample of the log by the reclaimer; 0: off"`
}

// stalls reads INGEST_STAGE_STALL_MS.
func (w Work) stalls() (map[taskstate.Stage]time.Duration, error) {
	known := map[taskstate.Stage]bool{}
	for _, s := range append(ingest.Describe().Stages, taskstate.StageNone, taskstate.StageRun) {
		known[s] = true
	}
	out := map[taskstate.Stage]time.Duration{}
	for _, part := range strings.Split(w.StallMS, ",") {
		stage, text, named := strings.Cut(strings.TrimSpace(part), "=")
		if !named {
			stage, text = string(taskstate.StageNone), stage
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxMS || !known[taskstate.Stage(stage)] {
			return nil, process.BadSetting("INGEST_STAGE_STALL_MS", "%q: allowed is a number of milliseconds 1..%d, or stage=ms with the stages none, extract, split, embed, index, switch, run", part, maxMS)
		}
		out[taskstate.Stage(stage)] = wiring.MS(n)
	}
	return out, nil
}

// runner is the runner's configuration; main says whether it takes new deliveries.
func (w Work) runner(name string, p taskstate.Policy, main bool) (taskrun.Config, error) {
	stalls, err := w.stalls()
	if err != nil {
		return taskrun.Config{}, err
	}
	c := taskrun.NewDefaultConfig()
	c.Process, c.Concurrency, c.Policy, c.StallLimit = name, w.Concurrency, p, stalls
	c.MainLoop, c.Recovery = main, w.Recovery || !main
	c.SweepInterval, c.PinMax, c.StopGrace = wiring.MS(w.SweepMS), wiring.MS(w.PinMaxMS), wiring.MS(w.StopGraceMS)
	c.Reconcile = taskrun.Reconcile{Enabled: w.ReclaimEnabled, Interval: wiring.MS(w.ReclaimMS), Idle: wiring.MS(w.ReclaimIdleMS), Batch: w.ReclaimBatch}
	return c, nil
}

// The values of STREAM_WORKER_ROADS.
const (
	roadDocuments = "documents"
	roadWorkflows = "workflows"
)

// roads reads STREAM_WORKER_ROADS.
func (w Work) roads() (documents, workflows bool, err error) {
	for _, part := range strings.Split(w.Roads, ",") {
		switch strings.TrimSpace(part) {
		case roadDocuments:
			documents = true
		case roadWorkflows:
			workflows = true
		default:
			return false, false, process.BadSetting("STREAM_WORKER_ROADS", "%q: allowed are documents and workflows, or both with a comma between them", part)
		}
	}
	return documents, workflows, nil
}

// membership is how a member of the group cleans up after others, and what it reads.
func (w Work) membership() queue.Membership {
	documents, workflows, _ := w.roads() // Validate has judged them
	return queue.Membership{
		SkipDocuments: !documents, SkipWorkflows: !workflows,
		ZombieMaxPending: w.ZombieMax, ZombieMinIdle: wiring.MS(w.ZombieIdleMS), ZombieInterval: wiring.MS(w.ZombieMS), ZombieDryRun: w.ZombieDryRun,
	}
}

// Content says how text is made of files.
type Content struct {
	Extract extract.Config // EXTRACT_*
	Split   split.Config   // CHUNK_*

	ExtractURL process.DSN    `envconfig:"EXTRACT_URL" desc:"Tika or Docling service that converts the documents of EXTRACT_TYPES; not set: none"`
	ExtractKey process.Secret `envconfig:"EXTRACT_API_KEY" desc:"sent to EXTRACT_URL: as a Bearer token to Tika, as X-Api-Key to Docling"`
}

// reading is the configuration of the readers: what both sides know of a document's types, and what the workers alone do.
func (s *Settings) reading() extract.Config {
	c := s.Content.Extract
	c.Accept = s.Shared.Accept
	c.External = extract.External{URL: s.Content.ExtractURL.Reveal(), Key: s.Content.ExtractKey.Reveal()}
	return c
}

// Settings are those of stream-worker, kafka-consumer and reclaimer.
type Settings struct {
	Shared  documents.Shared
	Work    Work
	Content Content
}

// Validate joins the problems of all parts.
func (s *Settings) Validate() error {
	_, stallErr := s.Work.stalls()
	_, _, roadsErr := s.Work.roads()
	return errors.Join(s.Shared.Validate(), s.reading().Validate(), s.Content.Split.Validate(), stallErr, roadsErr)
}
