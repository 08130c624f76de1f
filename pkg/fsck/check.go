// Package fsck judges a whole installation by the rules of deploy/docs/rules.md: the log of tasks, their rows, documents,
// versions, segments, vectors, the full-text index, files, the queue and its dead letters, and, where a lab keeps them, what the embedding
// service was asked (effects) and what clients saw (client log).
//
// Check is the one entry point. Each rule says how many events it judged; one whose evidence is missing is "not
// judged", never "passed". Rules I1–I11 are those of package history. Repair mends what can be made again.
//
// Memory: tasks are read in pages and their logs streamed; a document's segments are held one version at a time. What
// grows is the dead letters and the copies (one key each), the full-text index of the largest base (textindex.Index.Check) and, in a lab,
// effects and the client log.
//
// Rows of a living installation move while they are looked at: what looks wrong is read again before it is called a
// violation, and rules that need a world at rest say so (Options.Rest).
package fsck

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
)

//go:embed queries/*.sql
var queryFiles embed.FS

// checker is one check in work.
type checker struct {
	Findings
	e     Evidence
	o     Options
	q     sqldb.Queries
	db    taskstate.Tx
	tally *history.Tally
	log   *history.Checker // nil without History

	now         time.Time // the database's, at the start
	queue       *ingestq.State
	deadLetters map[death]*deadLetterState
	client      *clientView
	effects     map[string][]Effect  // of paid calls, by task, in their order
	acks        map[string][]Ack     // by delivery
	asleep      []taskstate.Task     // no call that was read at first names them
	wakes       map[waking]time.Time // when the first call that names a task wakes
	wants       map[string][]wanted  // by base: vectors that the store was not asked for yet
	unnamed     []string             // files without a row at the first look
	open        []string             // unfinished tasks that must have a copy by now
}

// waking is a task in a status in which it wakes.
type waking struct {
	task   string
	status taskstate.Status
}

// death names one end in DEAD.
type death struct {
	task  string
	fence int64
}

// Findings are what a check found, for people and for Repair.
type Findings struct {
	Report  history.Report
	Strays  []Stray
	Missing []Missing
	// Suspects are documents whose rows are wrong, Orphans files without a row, Lost what no repair can make again.
	Suspects []Suspect
	Orphans  []string
	Lost     []Lost
	// Unindexed are the bases whose full-text index is wrong.
	Unindexed []Unindexed
	// Asleep are tasks that wake and that nobody would look at then.
	Asleep []string
	// Young is how many files without a row are no violation yet (Options.FileAge).
	Young int
	// Uncompared is how many vectors the deep look could not compare: the embedding cache has forgotten them.
	Uncompared int64
}

// Stray is a vector that no row names.
type Stray struct{ Collection, ID string }

// Missing is a vector of a visible version that the store does not have, or has with another document, birth or values.
type Missing struct {
	Base, Document, Version, ID string
	Held                        bool // the store has it with other metadata: its values are taken where the cache has none
}

// Suspect is a document whose row, or whose files' rows, are not what they were.
type Suspect struct {
	Document string
	Flaws    int64 // violations that are its
}

// Lost is what a repair cannot make again, with the way to it.
type Lost struct{ Document, Reason string }

// Unindexed is a knowledge base whose full-text index has damaged parts, or not exactly the segments of visible versions.
type Unindexed struct {
	Base  string
	Flaws int64 // violations that are its
}

// keptFindings bounds the findings of each kind that are kept for Repair.
const keptFindings = 1_000_000

// keep adds a finding.
func keep[T any](findings *[]T, one T) {
	if len(*findings) < keptFindings {
		*findings = append(*findings, one)
	}
}

// Check judges the installation. Errors: what kept it from looking; violations are in the report.
func Check(ctx context.Context, e Evidence, o Options) (Findings, error) {
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	if o.InFlight <= 0 {
		o.InFlight = 2 // ingest.NewDefaultConfig
	}
	o.FileAge = cmp.Or(o.FileAge, DefaultFileAge)
	c := newChecker(e.DB)
	c.e, c.o = e, o
	if o.History {
		c.log = history.New(history.Options{Policy: o.Policy, Since: o.Since})
	}
	for _, r := range rules {
		switch {
		case r.later != "":
			c.tally.NotJudged(r.id, r.later)
		case !r.content && !o.History:
			c.tally.NotJudged(r.id, "only with the history")
		}
	}
	// The order is what a living installation needs: the queue is looked at before the rows that it names.
	for _, step := range []struct {
		what    string
		history bool // only with the history
		run     func(ctx context.Context) error
	}{
		{"read the clock", false, c.readClock},
		{"look at the queue", false, c.readQueue},
		{"check user ids", false, c.judgeUsers},
		{"read the client log", true, c.readClient},
		{"read effects", true, c.readEffects},
		{"read acknowledgements", true, c.readAcks},
		{"read tasks", false, c.readTasks},
		{"check dead letters", false, c.judgeDeadLetters},
		{"check the runs of workflows", false, c.judgeRuns},
		{"check documents", false, c.readDocuments},
		{"list the upload folder", false, c.listFiles},
		{"check vectors", false, c.listVectors},
		{"check the full-text index", false, c.judgeIndex},
		{"check files", false, c.readFiles},
		{"check the queue", true, c.judgeQueue},
		{"check the copies", true, c.judgeCopies},
		{"check the partitions", true, c.judgeMoves},
		{"check the outbox", true, c.judgeOutbox},
		{"check the client log", true, c.judgeClient},
		{"check the counts", true, c.judgeStats},
		{"scan logs", true, c.scanLogs},
		{"look again for files without a row", false, c.judgeOrphans},
	} {
		if step.history && !o.History {
			continue
		}
		if err := step.run(ctx); err != nil {
			return Findings{}, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	c.Report = c.report()
	return c.Findings, nil
}

// newChecker makes one that has looked at nothing.
func newChecker(db DB) *checker {
	c := &checker{
		q: sqldb.MustLoad(queryFiles, "queries", db.Dialect()), db: db.Reader(), tally: history.NewTally(history.DefaultExamples),
		deadLetters: map[death]*deadLetterState{}, wants: map[string][]wanted{},
	}
	for _, r := range rules {
		c.tally.Declare(r.id, r.sentence)
	}
	return c
}

// report is what all rules said.
func (c *checker) report() history.Report {
	if c.log == nil {
		return c.tally.Report()
	}
	return append(c.log.Report(), c.tally.Report()...)
}

// bad notes a violation.
func (c *checker) bad(id, about, format string, args ...any) {
	c.tally.Violation(id, about, fmt.Sprintf(format, args...), nil)
}

// judged counts one event that a rule has a say in.
func (c *checker) judged(id string) { c.tally.Judged(id, 1) }

// verdict counts one event and, when it is not as it must be, the violation.
func (c *checker) verdict(ok bool, id, about, format string, args ...any) {
	c.judged(id)
	if !ok {
		c.bad(id, about, format, args...)
	}
}

// notJudged says why rules have nothing to go by.
func (c *checker) notJudged(why string, ids ...string) {
	for _, id := range ids {
		c.tally.NotJudged(id, why)
	}
}

// readClock reads the database's time.
func (c *checker) readClock(ctx context.Context) error {
	m, err := c.e.DB.Moment(ctx)
	c.now = m.Now
	return err
}

// judgeStats is I34.
func (c *checker) judgeStats(ctx context.Context) error {
	if c.e.Stats == nil || !c.o.Rest {
		c.notJudged("needs a gateway to ask and a world at rest", "I34")
		return nil
	}
	said, err := c.e.Stats(ctx)
	if err != nil {
		return fmt.Errorf("ask the gateway for its counts: %w", err)
	}
	counted, err := c.counts(ctx)
	if err != nil {
		return err
	}
	for _, s := range taskstate.Statuses() {
		c.verdict(said[s] == counted[s], "I34", string(s), "the gateway counts %d, SQL %d", said[s], counted[s])
	}
	return nil
}

// judgeRuns is I39. A task and its run change in one transaction, so one statement sees both.
func (c *checker) judgeRuns(ctx context.Context) error {
	return c.each(ctx, func(rows *sql.Rows) error {
		var id, status, run string
		var same int
		if err := rows.Scan(&id, &status, &run, &same); err != nil {
			return err
		}
		switch ended := taskstate.Status(status).Terminal(); {
		case ended && run == "":
			c.verdict(false, "I39", id, "it is %s and has no row of workflow_runs", status)
		case !ended && run != "":
			c.verdict(false, "I39", id, "it is %s and workflow_runs says %s", cmp.Or(status, "no task of a workflow"), run)
		case ended && (run != status || same == 0):
			c.verdict(false, "I39", id, "it is %s and workflow_runs says %s, with another result: %t", status, run, same == 0)
		default:
			c.judged("I39")
		}
		return nil
	}, c.q.Get("Runs"))
}

// counts is GROUP BY status.
func (c *checker) counts(ctx context.Context) (map[taskstate.Status]int64, error) {
	out := map[taskstate.Status]int64{}
	return out, c.each(ctx, func(rows *sql.Rows) error {
		var s taskstate.Status
		var n int64
		err := rows.Scan(&s, &n)
		out[s] = n
		return err
	}, c.q.Get("Counts"))
}

// each calls f for every row of a query.
func (c *checker) each(ctx context.Context, f func(*sql.Rows) error, query string, args ...any) error {
	return sqldb.Each(ctx, c.db, f, query, args...)
}

// count reads the only number of a statement.
func (c *checker) count(ctx context.Context, name string, args ...any) (n int64, err error) {
	err = c.db.QueryRowContext(ctx, c.q.Get(name), args...).Scan(&n)
	return n, err
}

// pageSize is how many rows are read at once.
const pageSize = 500

// pages gives the rows of a statement that goes by a key to f, a page at a time.
func pages[T, K any](
	ctx context.Context, c *checker, name string, scan func(*sql.Rows) (T, error), key func(T) K, f func(ctx context.Context, page []T) error,
) error {
	var after K
	for {
		page, err := sqldb.Collect(ctx, c.db, scan, c.q.Get(name), after, pageSize)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := f(ctx, page); err != nil {
			return err
		}
		after = key(page[len(page)-1])
	}
}
