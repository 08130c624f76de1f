package fsck

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

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
	q      sqldb.Queries

	vectors ingest.VectorStore // nil: not looked at
	base    string             // the last one whose vectors were looked at
	round   int                // of looks at all bases

	mu   sync.Mutex
	lost map[string]int // bases whose vectors were missing at the last look, with the last round that listed them: each is counted once

	since time.Time // the policy is in force since then
	last  int64     // id of the last transition that was seen
}

// NewSampler makes one that looks every so often; policy holds the settings of this process. vectors may be nil.
func NewSampler(db DB, vectors ingest.VectorStore, policy taskstate.Policy, every time.Duration, log *slog.Logger, metrics prometheus.Registerer) *Sampler {
	s := &Sampler{
		db: db, vectors: vectors, lost: map[string]int{}, policy: &policy, every: every, log: log, q: sqldb.MustLoad(queryFiles, "queries", db.Dialect()),
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

// Look judges the tasks of the next transitions; the first look only notes where the log ends.
func (s *Sampler) Look(ctx context.Context) error {
	if s.since.IsZero() {
		m, err := s.db.Moment(ctx)
		if err != nil {
			return err
		}
		if err := s.db.Reader().QueryRowContext(ctx, s.q.Get("LastTransition")).Scan(&s.last); err != nil {
			return fmt.Errorf("find the end of the log: %w", err)
		}
		s.since = m.Now
		return nil
	}
	c := &checker{
		q: s.q, db: s.db.Reader(), tally: history.NewTally(history.DefaultExamples), deadLetters: map[death]*deadLetterState{},
		log: history.New(history.Options{Policy: s.policy, Since: s.since}),
	}
	for _, r := range rules {
		c.tally.Declare(r.id, r.sentence)
	}
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
	s.tell(ctx, c)
	return err
}

// lookAtVectors asks the store for some visible vectors of the next bases. A store that is not reachable is no finding:
// its own readiness check says so.
func (s *Sampler) lookAtVectors(ctx context.Context, c *checker) error {
	if s.vectors == nil {
		return nil
	}
	var bases []string
	err := c.each(ctx, c.q.Get("Bases"), []any{s.base, sampleBases}, func(scan func(...any) error) error {
		var id, model string
		var dim int
		var deleted bool
		err := scan(&id, &model, &dim, &deleted)
		if s.base = id; !deleted {
			bases = append(bases, id)
			s.listed(id)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list bases: %w", err)
	}
	if len(bases) == 0 {
		s.base = "" // from the beginning again
		s.endRound()
	}
	for _, base := range bases {
		if err := s.lookAtBase(ctx, c, base); err != nil {
			return fmt.Errorf("vectors of base %s: %w", base, err)
		}
	}
	return nil
}

// lookAtBase compares some visible vectors of a base with the store. Those that are not visible any more when the store has
// spoken count for nothing.
func (s *Sampler) lookAtBase(ctx context.Context, c *checker, base string) error {
	some, err := c.vectorIDs(ctx, c.q.Get("SomeVisibleVectors"), base, sampleVectors)
	if err != nil {
		return err
	}
	if len(some) == 0 {
		s.whole(base)
		return nil
	}
	held, err := s.vectors.Get(ctx, base, some, false)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(some, func(id string) bool { _, there := held[id]; return there })
	if len(missing) > 0 {
		args := []any{base}
		for _, id := range missing {
			args = append(args, id)
		}
		if missing, err = c.vectorIDs(ctx, c.q.List("StillVisible", len(missing)), args...); err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		s.whole(base)
	} else if s.loses(base) {
		c.bad("I25", base, "the vector store misses %d of some visible vectors of knowledge base %s, it holds %d of them: run millweir fsck --repair",
			len(missing), base, len(held))
	}
	return nil
}

// Lost are the knowledge bases of which the vector store missed visible vectors at the last look, sorted. It is safe for
// concurrent use.
func (s *Sampler) Lost() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.lost))
}

// loses notes that a base has lost vectors; it reports whether that is new.
func (s *Sampler) loses(base string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.lost[base]
	s.lost[base] = s.round
	return !known
}

// whole notes that a base has lost none.
func (s *Sampler) whole(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lost, base)
}

// listed notes that a base is still there.
func (s *Sampler) listed(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.lost[base]; known {
		s.lost[base] = s.round
	}
}

// endRound forgets bases that are gone.
func (s *Sampler) endRound() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.lost, func(_ string, round int) bool { return round < s.round })
	s.round++
}

// vectorIDs are the ids that a statement finds.
func (c *checker) vectorIDs(ctx context.Context, query string, args ...any) (ids []string, err error) {
	err = c.each(ctx, query, args, func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// moved are some of the tasks that moved since the last look, and the transition up to which they are.
func (s *Sampler) moved(ctx context.Context, c *checker) (ids []string, last int64, err error) {
	last = s.last
	seen := map[string]bool{}
	err = c.each(ctx, s.q.Get("Moved"), []any{s.last, sampleRows}, func(scan func(...any) error) error {
		var id string
		if err := scan(&last, &id); err != nil {
			return err
		}
		if !seen[id] && len(ids) < sampleTasks {
			ids = append(ids, id)
		}
		seen[id] = true
		return nil
	})
	return ids, last, err
}

// judgeOne judges one task by its whole log.
func (c *checker) judgeOne(ctx context.Context, id string) error {
	l := newLife()
	err := c.each(ctx, c.q.Get("LogAfter"), []any{id, 0}, func(scan func(...any) error) error {
		tr, err := scanTransition(scan)
		if err == nil && len(l.log) < sampleLog {
			c.addStep(l, tr)
		}
		return err
	})
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
	for _, r := range append(c.log.Report(), c.tally.Report()...) {
		if r.Violations == 0 {
			continue
		}
		s.found.WithLabelValues(r.Rule).Add(float64(r.Violations))
		for _, e := range r.Examples {
			s.log.ErrorContext(ctx, "checker: a rule is broken", slog.String("rule", r.Rule), slog.String("task_id", e.Task), slog.String("problem", e.Problem))
		}
	}
}
