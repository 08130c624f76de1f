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
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/fsck/rules"
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
	tick  func()           // tells that it moves

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
	// Counted are tasks among the failures that do not fail.
	Counted []string
	// Miscounted are the numbers of documents that are counted wrongly.
	Miscounted []Miscounted
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

// Miscounted are the documents of a knowledge base in one status.
type Miscounted struct{ Base, Status string }

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
	for _, r := range rules.Own {
		switch {
		case r.Later != "":
			c.tally.NotJudged(r.ID, r.Later)
		case !r.Content && !o.History:
			c.tally.NotJudged(r.ID, "only with the history")
		}
	}
	// The order is what a living installation needs: the queue is looked at before the rows that it names.
	type step struct {
		what    string
		history bool // only with the history
		run     func(ctx context.Context) error
	}
	steps := []step{
		{"read the clock", false, c.readClock},
		{"look at the queue", false, c.readQueue},
		{"check user ids", false, c.judgeUsers},
		{"read the client log", true, c.readClient},
		{"read effects", true, c.readEffects},
		{"read acknowledgements", true, c.readAcks},
		{"read tasks", false, c.readTasks},
		{"check dead letters", false, c.judgeDeadLetters},
		{"check the runs of workflows", false, c.judgeRuns},
		{"check the counts of failures", false, c.judgeFailures},
		{"check the counts of tasks", false, c.judgeCounts},
		{"check the counts of documents", false, c.judgeDocumentCounts},
		{"check documents", false, c.readDocuments},
		{"check receipts of deletions", false, c.judgeReceipts},
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
	}
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.history && !o.History })
	for i, step := range steps {
		c.tick = func() { o.tell(i, len(steps)) }
		c.tick()
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
		tick: func() {}, q: sqldb.MustLoad(queryFiles, "queries", db.Dialect()), db: db.Reader(), tally: history.NewTally(history.DefaultExamples),
		deadLetters: map[death]*deadLetterState{}, wants: map[string][]wanted{},
	}
	for _, r := range rules.Own {
		c.tally.Declare(r.ID, r.Sentence)
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

// judgeFailures is I40. A failure and its count are written in one transaction, so one statement sees both.
func (c *checker) judgeFailures(ctx context.Context) error {
	return c.each(ctx, func(rows *sql.Rows) error {
		var what, id string
		var said, counted int64
		if err := rows.Scan(&what, &id, &said, &counted); err != nil {
			return err
		}
		switch what {
		case "counted":
			c.verdict(false, "I40", id, "it is counted among the failures and does not fail")
			keep(&c.Counted, id)
		case "fails":
			c.verdict(false, "I40", id, "it fails and is not counted among the failures")
		case "group":
			c.verdict(false, "I40", id, "the group says %d tasks, and %d are counted in it", said, counted)
		default:
			c.tally.Judged("I40", said)
		}
		return nil
	}, c.q.Get("Failures"))
}

// judgeCounts is I41. Tasks, what is counted of them and the calls that are not counted yet are read by one statement.
func (c *checker) judgeCounts(ctx context.Context) error {
	type whose struct{ user, base, status string }
	are, said := map[whose]int64{}, map[whose]int64{}
	all, counted := map[string]int64{}, map[string]int64{}
	var calls []string
	err := c.each(ctx, func(rows *sql.Rows) error {
		var what, from, owners string
		var w whose
		var n int64
		if err := rows.Scan(&what, &w.user, &w.base, &w.status, &from, &n, &owners); err != nil {
			return err
		}
		switch what {
		case "are":
			are[w] += n
			all[w.status] += n
		case "owner":
			said[w] += n
		case "status":
			counted[w.status] += n
		case "call":
			counted[w.status] += n
			counted[from] -= n
			var of []struct {
				User, Base string
				N          int64
			}
			if owners != "" {
				if err := json.Unmarshal([]byte(owners), &of); err != nil {
					calls = append(calls, err.Error())
				}
			}
			for _, o := range of {
				said[whose{o.User, o.Base, w.status}] += o.N
				said[whose{o.User, o.Base, from}] -= o.N
			}
		}
		return nil
	}, c.q.Get("Counted"))
	if err != nil {
		return err
	}
	for _, err := range calls {
		c.verdict(false, "I41", "", "whose tasks a call moved cannot be read: %s", err)
	}
	for _, s := range taskstate.Statuses() {
		c.verdict(counted[string(s)] == all[string(s)], "I41", string(s), "%d are counted, and there are %d", counted[string(s)], all[string(s)])
	}
	for w, n := range said {
		if n != 0 && w.status != "" {
			are[w] += 0 // what is counted and is not there is judged too
		}
	}
	for w, n := range are {
		c.verdict(said[w] == n, "I41", w.status, "of user %q in knowledge base %q %d are counted, and there are %d", w.user, w.base, said[w], n)
	}
	return nil
}

// judgeDocumentCounts is I42. Documents and what is counted of them are read by one statement.
func (c *checker) judgeDocumentCounts(ctx context.Context) error {
	type of struct{ base, status string }
	type number struct{ documents, segments int64 }
	are, said := map[of]number{}, map[of]number{}
	err := c.each(ctx, func(rows *sql.Rows) error {
		var what string
		var x of
		var n number
		if err := rows.Scan(&what, &x.base, &x.status, &n.documents, &n.segments); err != nil {
			return err
		}
		if what == "are" {
			are[x] = n
			return nil
		}
		n.documents += said[x].documents
		n.segments += said[x].segments
		said[x] = n
		return nil
	}, c.q.Get("CountedDocuments"))
	if err != nil {
		return err
	}
	for x, n := range said {
		if _, there := are[x]; !there && n != (number{}) {
			are[x] = number{} // what is counted and is not there is judged too
		}
	}
	for x, n := range are {
		s := said[x]
		if s != n {
			keep(&c.Miscounted, Miscounted{x.base, x.status})
		}
		c.verdict(s == n, "I42", x.base, "%d %s documents with %d segments are counted, and there are %d with %d", s.documents, x.status, s.segments, n.documents, n.segments)
	}
	return nil
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
	return sqldb.Each(ctx, c.db, func(rows *sql.Rows) error {
		c.tick()
		return f(rows)
	}, query, args...)
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
		c.tick()
		if err := f(ctx, page); err != nil {
			return err
		}
		after = key(page[len(page)-1])
	}
}
