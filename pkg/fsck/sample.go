package fsck

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
)

const (
	// sampleRows and sampleTasks bound one look of a Sampler: it must never be felt.
	sampleRows  = 1000
	sampleTasks = 100
	// sampleLog is the longest log that is judged; a longer one would cost more than a sample may.
	sampleLog = 1000
	// sampleBases and sampleVectors bound what one look asks the vector store for.
	sampleBases   = 20
	sampleVectors = 20
)

// sampled are the rules that a task's log and row alone can break, and that of the visible vectors.
var sampled = []string{"I25", "I30", "I36"}

// Sampler judges a sample of the tasks that moved lately, again and again, and counts violations. In a sound installation
// its figure stays 0; it is a smoke detector, not a proof.
type Sampler struct {
	db     DB
	policy *taskstate.Policy
	every  time.Duration
	log    *slog.Logger
	found  *prometheus.CounterVec

	vectors ingest.VectorStore // nil: not looked at
	base    string             // the last one whose vectors were looked at
	round   int                // of looks at all bases

	lost  map[string]int           // bases whose vectors were missing, with the last round that listed them: each is counted once
	known atomic.Pointer[[]string] // lost as of the last look, sorted

	since time.Time // the policy is in force since then
	last  int64     // number of the last call that was seen
}

// NewSampler makes one that looks every so often; policy holds the settings of this process. vectors may be nil.
func NewSampler(db DB, vectors ingest.VectorStore, policy taskstate.Policy, every time.Duration, log *slog.Logger, metrics prometheus.Registerer) *Sampler {
	s := &Sampler{
		db: db, vectors: vectors, lost: map[string]int{}, policy: &policy, every: every, log: log,
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ingest_invariant_violations", Help: "Broken rules found in a sample of the tasks that moved, by rule (deploy/docs/fsck.md).",
		}, []string{"class"}),
	}
	for _, r := range history.Rules() {
		s.found.WithLabelValues(r.ID)
	}
	for _, id := range sampled {
		s.found.WithLabelValues(id)
	}
	metrics.MustRegister(s.found)
	return s
}

// Run looks until ctx ends. A database that does not answer is asked again at the next look.
func (s *Sampler) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for {
		if err := s.Look(ctx); err != nil && ctx.Err() == nil {
			s.log.DebugContext(ctx, "checker: look", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Look judges the tasks of the next calls; the first look only notes where the log ends.
func (s *Sampler) Look(ctx context.Context) error {
	c := newChecker(s.db)
	if s.since.IsZero() {
		m, err := s.db.Moment(ctx)
		if err != nil {
			return err
		}
		last, err := c.count(ctx, "LastCall")
		if err != nil {
			return fmt.Errorf("find the end of the log: %w", err)
		}
		s.last, s.since = last, m.Now
		return nil
	}
	c.log = history.New(history.Options{Policy: s.policy, Since: s.since})
	ids, last, err := s.moved(ctx, c)
	if err != nil {
		return fmt.Errorf("find what moved: %w", err)
	}
	for _, id := range ids {
		if err := c.judgeOne(ctx, id); err != nil {
			return fmt.Errorf("task %s: %w", id, err)
		}
	}
	s.last = last
	err = s.lookAtVectors(ctx, c)
	s.known.Store(new(slices.Sorted(maps.Keys(s.lost))))
	s.tell(ctx, c)
	return err
}

// lookAtVectors asks the store for some visible vectors of the next bases. A store that is not reachable is no finding:
// its own readiness check says so.
func (s *Sampler) lookAtVectors(ctx context.Context, c *checker) error {
	if s.vectors == nil {
		return nil
	}
	bases, err := sqldb.Collect(ctx, c.db, scanBase, c.q.Get("Bases"), s.base, sampleBases)
	if err != nil {
		return fmt.Errorf("list bases: %w", err)
	}
	if len(bases) == 0 { // from the beginning again, without those that are gone
		s.base = ""
		maps.DeleteFunc(s.lost, func(_ string, round int) bool { return round < s.round })
		s.round++
	}
	for _, b := range bases {
		s.base = b.id
		if _, lost := s.lost[b.id]; lost && !b.deleted {
			s.lost[b.id] = s.round
		}
	}
	for _, b := range bases {
		if b.deleted {
			continue
		}
		if err := s.lookAtBase(ctx, c, b.id); err != nil {
			return fmt.Errorf("vectors of base %s: %w", b.id, err)
		}
	}
	return nil
}

// lookAtBase compares some visible vectors of a base with the store. Those that are not visible any more when the store has
// spoken count for nothing.
func (s *Sampler) lookAtBase(ctx context.Context, c *checker, base string) error {
	ids := func(query string, args ...any) ([]string, error) {
		return sqldb.Collect(ctx, c.db, sqldb.Column[string], query, args...)
	}
	missing, err := ids(c.q.Get("SomeVisibleVectors"), base, sampleVectors)
	held := map[string]ingest.Vector{}
	if err == nil && len(missing) > 0 {
		held, err = s.vectors.Get(ctx, base, missing, false)
		missing = slices.DeleteFunc(missing, func(id string) bool { _, there := held[id]; return there })
	}
	if err == nil && len(missing) > 0 {
		missing, err = ids(c.q.List("StillVisible", len(missing)), slices.Insert(sqldb.Args(missing), 0, any(base))...)
	}
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		delete(s.lost, base)
		return nil
	}
	if _, known := s.lost[base]; !known {
		c.bad("I25", base, "the vector store misses %d of some visible vectors of knowledge base %s, it holds %d of them: run millweir fsck --repair",
			len(missing), base, len(held))
	}
	s.lost[base] = s.round
	return nil
}

// Lost are the knowledge bases of which the vector store missed visible vectors at the last look, sorted. It is safe for
// concurrent use.
func (s *Sampler) Lost() []string {
	if known := s.known.Load(); known != nil {
		return slices.Clone(*known)
	}
	return nil
}

// moved are some of the tasks that moved since the last look, and the call up to which they are.
func (s *Sampler) moved(ctx context.Context, c *checker) (ids []string, last int64, err error) {
	last = s.last
	seen := map[string]bool{}
	err = c.each(ctx, func(rows *sql.Rows) error {
		var raw []byte
		if err := rows.Scan(&last, &raw); err != nil {
			return err
		}
		for b := range slices.Chunk(raw, len(uuid.UUID{})) {
			id := uuid.UUID(b).String()
			if !seen[id] && len(ids) < sampleTasks {
				ids = append(ids, id)
			}
			seen[id] = true
		}
		return nil
	}, c.q.Get("Moved"), s.last, sampleRows)
	return ids, last, err
}

// judgeOne judges one task by its whole log.
func (c *checker) judgeOne(ctx context.Context, id string) error {
	l := newLife()
	err := c.readLog(ctx, func(tr taskstate.Transition) {
		if len(l.log) < sampleLog {
			c.addStep(l, tr)
		}
	}, "LogAfter", id, 0)
	if err != nil {
		return err
	}
	if len(l.log) >= sampleLog {
		c.log.Forget(id)
		return nil
	}
	return c.endTask(ctx, id, taskstate.Task{}, false, l)
}

// tell counts what was found and names its first examples.
func (s *Sampler) tell(ctx context.Context, c *checker) {
	for _, r := range c.report() {
		if r.Violations == 0 {
			continue
		}
		s.found.WithLabelValues(r.Rule).Add(float64(r.Violations))
		for _, e := range r.Examples {
			s.log.ErrorContext(ctx, "checker: a rule is broken", slog.String("rule", r.Rule), slog.String("task_id", e.Task), slog.String("problem", e.Problem))
		}
	}
}
