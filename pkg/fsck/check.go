package fsck

import (
	"bufio"
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	effects     map[string][]Effect // of paid calls, by task, in their order
	acks        map[string][]Ack    // by delivery
	strays      []Stray
	missing     []Missing
	wants       map[string][]wanted // by base: vectors that the store was not asked for yet

	suspects []Suspect
	lost     []Lost
	unnamed  []string // files without a row at the first look
	orphans  []string
	young    int
	unknown  int64
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
	// Young is how many files without a row are no violation yet (Options.FileAge).
	Young int
	// Uncompared is how many vectors the deep look could not compare: the embedding cache has forgotten them.
	Uncompared int64
}

// Stray is a vector that no row names.
type Stray struct{ Base, ID string }

// Missing is a vector of a visible version that the store does not have, or has with another document, birth or values.
type Missing struct {
	Base, Document, Version, ID string
	Held                        bool // the store has it with other metadata: its values are taken where the cache has none
}

// Check judges the installation. Errors: what kept it from looking; violations are in the report.
func Check(ctx context.Context, e Evidence, o Options) (Findings, error) {
	if o.Patience <= 0 {
		o.Patience = DefaultPatience
	}
	if o.InFlight <= 0 {
		o.InFlight = 2 // ingest.NewDefaultConfig
	}
	c := &checker{
		e: e, o: o, q: sqldb.MustLoad(queryFiles, "queries", e.DB.Dialect()), db: e.DB.Reader(),
		tally: history.NewTally(history.DefaultExamples), deadLetters: map[death]*deadLetterState{}, wants: map[string][]wanted{},
	}
	if o.FileAge == 0 {
		c.o.FileAge = DefaultFileAge
	}
	for _, r := range rules {
		c.tally.Declare(r.id, r.sentence)
		switch {
		case r.later != "":
			c.tally.NotJudged(r.id, r.later)
		case !r.content && !o.History:
			c.tally.NotJudged(r.id, "only with the history")
		}
	}
	for _, step := range c.steps() {
		if err := step.run(ctx); err != nil {
			return Findings{}, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return c.findings(), nil
}

// step is one part of a check.
type step struct {
	what string
	run  func(ctx context.Context) error
}

// steps are in the order that a living installation needs: the queue is looked at before the rows that it names.
func (c *checker) steps() []step {
	out := []step{
		{"read the clock", c.readClock},
		{"look at the queue", c.readQueue},
		{"check user ids", c.judgeUsers},
	}
	if c.o.History {
		out = append(out, step{"read the client log", c.readClient}, step{"read effects", c.readEffects},
			step{"read acknowledgements", c.readAcks})
	}
	out = append(out, step{"read tasks", c.readTasks}, step{"check dead letters", c.judgeDeadLetters}, step{"check documents", c.readDocuments},
		step{"list the upload folder", c.listFiles}, step{"check vectors", c.listVectors}, step{"check files", c.readFiles})
	if c.o.History {
		out = append(out, step{"check the queue", c.judgeQueue}, step{"check the partitions", c.judgeMoves}, step{"check the outbox", c.judgeOutbox}, step{"check the client log", c.judgeClient},
			step{"check the counts", c.judgeStats}, step{"scan logs", c.scanLogs})
	}
	return append(out, step{"look again for files without a row", c.judgeOrphans})
}

// findings closes the check.
func (c *checker) findings() Findings {
	report := c.tally.Report()
	if c.log != nil {
		report = append(c.log.Report(), report...)
	}
	return Findings{
		Report: report, Strays: c.strays, Missing: c.missing, Suspects: c.suspects, Orphans: c.orphans, Lost: c.lost,
		Young: c.young, Uncompared: c.unknown,
	}
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

// readClock reads the database's time.
func (c *checker) readClock(ctx context.Context) error {
	m, err := c.e.DB.Moment(ctx)
	c.now = m.Now
	return err
}

// readQueue looks at the queue, before the rows that its deliveries name are read.
func (c *checker) readQueue(ctx context.Context) error {
	if c.e.Queue == nil {
		for _, id := range []string{"I15", "I18", "I19", "I20", "I21", "L4", "L5", "L6"} {
			c.tally.NotJudged(id, "no queue to look at")
		}
		return nil
	}
	state, err := c.e.Queue.Look(ctx)
	if err != nil {
		return err
	}
	c.queue = &state
	return nil
}

// readLines gives each JSON line to f; a last line without its end is dropped.
func readLines[T any](r io.Reader, f func(T)) error {
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		f(v)
	}
}

// judgeStats is I34.
func (c *checker) judgeStats(ctx context.Context) error {
	if c.e.Stats == nil || !c.o.Rest {
		c.tally.NotJudged("I34", "needs a gateway to ask and a world at rest")
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

// counts is GROUP BY status.
func (c *checker) counts(ctx context.Context) (map[taskstate.Status]int64, error) {
	out := map[taskstate.Status]int64{}
	return out, c.each(ctx, c.q.Get("Counts"), nil, func(scan func(...any) error) error {
		var s taskstate.Status
		var n int64
		err := scan(&s, &n)
		out[s] = n
		return err
	})
}

// each reads all rows of a statement.
func (c *checker) each(ctx context.Context, query string, args []any, f func(scan func(...any) error) error) error {
	return sqldb.Each(ctx, c.db, func(rows *sql.Rows) error { return f(rows.Scan) }, query, args...)
}
