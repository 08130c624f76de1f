package console

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/console/drawing"
)

// homeData is what waits, why, and what has failed.
type homeData struct {
	Sentence []string // in words, each a clause
	Facets   []facet
	Bases    []wire.Base
	MoreOf   bool // there are more bases than are shown
	Due      []wire.Task
	Failures wire.List[wire.FailureGroup]
	Plots    []drawing.History // of the last hour and day; none: not an operator
	Pace     *wire.Pace        // nil: the same
	Parts    []homePart        // of the installation; none: the same
}

// homePart is how a part of the installation is.
type homePart struct {
	Name, Link string // Link: of the screen that says more
	Says       []string
	Bad        bool
	At         wire.NullTime // when that was found out; missing: now
}

func (h *Handler) home(p *page) error {
	if !p.Reads() {
		if p.Searches() {
			p.redirect("/search", nil)
		} else {
			p.redirect("/upload", nil)
		}
		return nil
	}
	d := homeData{}
	open, err := p.some("QUEUED", "RUNNING", "RETRYING", "SUSPENDED")
	if err != nil {
		return err
	}
	dead, err := p.some("DEAD")
	if err != nil {
		return err
	}
	d.Sentence = p.sentence(open.Items, len(dead.Items), open.HasMore, dead.HasMore)
	d.Due = open.Items[:min(len(open.Items), 8)]
	if err := p.get(failuresPath, url.Values{"limit": {"5"}}, &d.Failures); err != nil {
		return err
	}
	stats, err := p.stats()
	if err != nil {
		return err
	}
	d.Facets = p.facets(countsOf(stats))
	var bases wire.List[wire.Base]
	if err := p.get(basesPath, url.Values{"limit": {"10"}, "counts": {"true"}}, &bases); err != nil {
		return err
	}
	d.Bases, d.MoreOf = bases.Items, bases.HasMore
	if stats != nil {
		d.Pace = &stats.Pace
		for _, span := range []string{"hour", "day"} {
			var past wire.History
			if err := p.get(operatorTasks+"/history", url.Values{"span": {span}}, &past); err != nil {
				return err
			}
			d.Plots = append(d.Plots, drawing.OfHistory(past, span == "day"))
		}
		if d.Parts, err = p.parts(stats); err != nil {
			return err
		}
	}
	p.Section = "home"
	return p.show("home", p.T("Home"), d)
}

// parts say how workers, queue, outbox and rules are, as far as this service has them.
func (p *page) parts(stats *wire.Stats) (out []homePart, err error) {
	var workers wire.List[wire.Worker]
	if there, err := p.getAny("/internal/workers", nil, &workers); err != nil {
		return nil, err
	} else if there {
		out = append(out, p.workersPart(workers.Items))
	}
	out = append(out, homePart{Name: p.T("Queue"), Link: p.Link("/queues"), Says: []string{
		p.T("deliveries in the stream: %d", stats.StreamLength), p.T("waiting for a retry: %d", stats.RetryLength),
	}})
	var box wire.OutboxStats
	if there, err := p.getAny("/internal/outbox", nil, &box); err != nil {
		return nil, err
	} else if there {
		part := homePart{Name: p.T("Outbox"), Link: p.Link("/queues"), Says: []string{p.T("events that wait: %d", box.Backlog)}}
		if box.Backlog > 0 {
			part.Says = append(part.Says, p.T("the oldest for %s", p.Seconds(box.OldestAgeSeconds)))
		}
		out = append(out, part)
	}
	if !p.Texts() {
		return out, nil
	}
	var checks wire.List[wire.Check]
	if there, err := p.getAny(checksPath, url.Values{"limit": {lastChecks}}, &checks); err != nil || !there {
		return out, err
	}
	return append(out, p.rulesPart(checks.Items)), nil
}

// getAny is get of a part that not every service has; there reports whether this one does.
func (p *page) getAny(path string, q url.Values, into any) (there bool, err error) {
	if err = p.get(path, q, into); gone(err) {
		return false, nil
	}
	return err == nil, err
}

// Joined are clauses on one line.
func (p *page) Joined(clauses []string) string { return strings.Join(clauses, " · ") }

// workersPart says how many processes live and what they run.
func (p *page) workersPart(all []wire.Worker) homePart {
	part := homePart{Name: p.T("Workers"), Link: p.Link("/workers")}
	alive, running, slots, draining, lost := 0, 0, 0, 0, 0
	for _, w := range all {
		switch {
		case w.Alive:
			alive++
			running += w.Running
			if w.Slots != nil {
				slots += *w.Slots
			}
			if !w.DrainAt.Missing() {
				draining++
			}
		case w.Running > 0:
			lost++
		}
	}
	if len(all) == 0 {
		part.Says = []string{p.T("No worker process has lived in the last hour.")}
		return part
	}
	part.Says = []string{p.T("alive: %d", alive), p.T("running tasks: %d", running)}
	if slots > 0 {
		part.Says = append(part.Says, p.T("slots: %d", slots))
	}
	if draining > 0 {
		part.Says = append(part.Says, p.T("take no new task: %d", draining))
	}
	if lost > 0 {
		part.Bad, part.Says = true, append(part.Says, p.T("have tasks and an ended lease: %d", lost))
	}
	return part
}

// rulesPart says what the last check found that ended well, of the checks that are listed.
func (p *page) rulesPart(checks []wire.Check) homePart {
	part := homePart{Name: p.T("Rules"), Link: p.Link("/health"), Says: []string{p.T("The installation was not checked yet.")}}
	for _, c := range checks {
		if c.Violations == nil {
			continue
		}
		left := *c.Violations
		if c.Left != nil {
			left = *c.Left
		}
		part.At, part.Bad, part.Says = c.EndedAt, left > 0, []string{p.T("violations: %d", left)}
		break
	}
	return part
}

// some are tasks of these statuses, the last changed first.
func (p *page) some(statuses ...string) (list wire.List[wire.Task], err error) {
	q := url.Values{"status": {strings.Join(statuses, ",")}, "limit": {"100"}, "sort": {"-updatedAt"}}
	return list, p.get(tasksPath, q, &list)
}

// reason is why some tasks wait.
type reason struct {
	why  string
	code string
}

// sentence says what is going on, one clause for each reason to wait.
func (p *page) sentence(open []wire.Task, dead int, more, moreDead bool) []string {
	count, until := map[reason]int{}, map[reason]time.Time{}
	running := 0
	for _, t := range open {
		if t.Status == taskstate.StatusRunning {
			running++
			continue
		}
		r := reason{why: string(t.Status)}
		if t.Waiting != nil {
			r.why = t.Waiting.Reason
		}
		if r.why != wire.WaitQueue {
			r.code = string(t.ErrorCode)
		}
		count[r]++
		if t.Waiting != nil && !t.Waiting.Until.Missing() && (until[r].IsZero() || t.Waiting.Until.Before(until[r])) {
			until[r] = t.Waiting.Until.Time
		}
	}
	var out []string
	if running > 0 {
		out = append(out, p.T("%s being worked on", p.tasksOf(running, more)))
	}
	var reasons []reason
	for r := range count {
		reasons = append(reasons, r)
	}
	slices.SortFunc(reasons, func(a, b reason) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a.why+a.code, b.why+b.code))
	})
	for _, r := range reasons {
		text := p.tasksOf(count[r], more) + " " + p.waits(r.why)
		if r.code != "" {
			text += " (" + r.code + ")"
		}
		if at := until[r]; !at.IsZero() {
			text += p.T(", the next at %s", at.UTC().Format("15:04:05 UTC"))
		}
		out = append(out, text)
	}
	if dead > 0 {
		out = append(out, p.T("%s failed and will not be tried again by itself", p.tasksOf(dead, moreDead)))
	}
	return out
}

// tasksOf is a number of tasks in words.
func (p *page) tasksOf(n int, more bool) string {
	switch {
	case more && n >= 1:
		return p.T("%d or more tasks", n)
	case n == 1:
		return p.T("1 task")
	}
	return p.T("%d tasks", n)
}

// waits is why a task waits, in words.
func (p *page) waits(why string) string {
	switch why {
	case wire.WaitQueue:
		return p.T("waiting for a free worker")
	case wire.WaitAlone:
		return p.T("waiting to run alone")
	case wire.WaitBackoff:
		return p.T("waiting to be tried again")
	case wire.WaitThrottle:
		return p.T("waiting because a service asked for it")
	case wire.WaitPerson:
		return p.T("waiting for an operator")
	}
	return p.T("waiting")
}

// Waits is why a task waits, for templates.
func (p *page) Waits(w *wire.Waiting) string { return p.waits(w.Reason) }
