package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// DefaultExamples is how many violations of a rule are kept with their history.
	DefaultExamples = 5
	// A history in words shows the first few and the last transitions before the violation.
	headLines = 4
	tailLines = 20
)

// Checker judges the logs of many tasks at once. Its memory grows with the tasks that have been begun and not been
// ended by Row or Missing, not with the length of their logs. It is not safe for concurrent use.
type Checker struct {
	opts    Options
	tally   *Tally
	threads map[string]*thread
	free    []*thread
}

// thread is one task's log so far.
type thread struct {
	trail Trail
	count int
	head  []taskstate.Transition
	tail  []taskstate.Transition // ring; the next one goes to count % tailLines
}

// New makes a Checker.
func New(opts Options) *Checker {
	c := &Checker{opts: opts, threads: map[string]*thread{}, tally: NewTally(DefaultExamples)}
	for _, r := range Rules() {
		c.tally.Declare(r.ID, r.Sentence)
	}
	return c
}

// Add judges one transition. Those of one task come in the order of their ids; tasks may alternate.
func (c *Checker) Add(tr taskstate.Transition) {
	t := c.threads[tr.TaskID]
	if t == nil {
		t = c.thread()
		c.threads[tr.TaskID] = t
	}
	t.keep(tr)
	next, verdict := t.trail.Step(&c.opts, tr)
	t.trail = next
	c.note(tr.TaskID, t, fmt.Sprintf("transition %d: ", tr.ID), verdict)
}

// Row judges a task's row against its log, all of which has been added, and forgets the task.
// Row and log must be of one moment: read them in one transaction, or again when they differ.
func (c *Checker) Row(task taskstate.Task) {
	t := c.threads[task.ID]
	if t == nil {
		t = &thread{}
	}
	c.note(task.ID, t, "", t.trail.Row(task))
	c.Forget(task.ID)
}

// Agrees reports whether Row would find the row and its log of one mind (I2).
func (c *Checker) Agrees(task taskstate.Task) bool {
	t := c.threads[task.ID]
	return t != nil && rowAgrees(t.trail, task) == ""
}

// Missing says that a task whose log was added has no row, and forgets it.
func (c *Checker) Missing(taskID string) {
	if t := c.threads[taskID]; t != nil {
		c.note(taskID, t, "", Verdict{Judged: rules[1].bit(), Violations: []Violation{{rules[1].ID, "it has a log and no row"}}})
	}
	c.Forget(taskID)
}

// Tasks are the ids of the tasks that were begun and not ended.
func (c *Checker) Tasks() []string { return slices.Collect(maps.Keys(c.threads)) }

// Trail is what is known of a task that has not been ended.
func (c *Checker) Trail(taskID string) Trail {
	if t := c.threads[taskID]; t != nil {
		return t.trail
	}
	return Trail{}
}

// Report returns every rule's word so far.
func (c *Checker) Report() Report { return c.tally.Report() }

// note counts a verdict.
func (c *Checker) note(task string, t *thread, where string, v Verdict) {
	for i := range rules {
		if v.Judged.Has(&rules[i]) {
			c.tally.Judged(rules[i].ID, 1)
		}
	}
	for _, bad := range v.Violations {
		c.tally.Violation(bad.Rule, task, where+bad.Problem, t.words)
	}
}

// thread is a fresh one, or one that is not needed any more.
func (c *Checker) thread() *thread {
	if n := len(c.free); n > 0 {
		t := c.free[n-1]
		c.free = c.free[:n-1]
		*t = thread{head: t.head[:0], tail: t.tail[:0]}
		return t
	}
	return &thread{}
}

// Forget drops what is known of a task without judging its row.
func (c *Checker) Forget(taskID string) {
	if t := c.threads[taskID]; t != nil {
		delete(c.threads, taskID)
		c.free = append(c.free, t)
	}
}

// keep remembers a transition for the history in words.
func (t *thread) keep(tr taskstate.Transition) {
	t.count++
	if len(t.head) < headLines {
		t.head = append(t.head, tr)
		return
	}
	if len(t.tail) < tailLines {
		t.tail = append(t.tail, tr)
		return
	}
	t.tail[(t.count-headLines-1)%tailLines] = tr
}

// words is the history up to now as a person reads it.
func (t *thread) words() string {
	log := append([]taskstate.Transition{}, t.head...)
	skipped := t.count - len(t.head) - len(t.tail)
	for i := range t.tail {
		log = append(log, t.tail[(t.count-headLines+i)%len(t.tail)])
	}
	text := Words(log)
	if skipped > 0 {
		lines := strings.SplitAfterN(text, "\n", headLines+1)
		text = strings.Join(lines[:headLines], "") + fmt.Sprintf("… %d more …\n", skipped) + lines[headLines]
	}
	return text
}

// Words renders transitions one a line.
func Words(log []taskstate.Transition) string {
	var b strings.Builder
	for i := range log {
		t := &log[i]
		fmt.Fprintf(&b, "%d %s %s→%s %s attempt=%d crashes=%d fence=%d by %s", t.ID, t.CreatedAt.UTC().Format("15:04:05.000000"),
			named(t.From), named(t.To), t.Reason, t.AttemptCount, t.CrashCount, t.Fence, t.Actor)
		if !t.LeaseExpiresAt.IsZero() {
			fmt.Fprintf(&b, " lease=%s", clock(At(t.LeaseExpiresAt)))
		}
		if !t.NextRetryAt.IsZero() {
			fmt.Fprintf(&b, " next=%s", clock(At(t.NextRetryAt)))
		}
		if t.Message != "" {
			b.WriteString(": " + t.Message)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
