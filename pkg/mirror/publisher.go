package mirror

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
)

const (
	lookEvery   = 100 * time.Millisecond // of looks for new tasks
	quickCommit = 200 * time.Millisecond // most tasks are committed so long after their id was made: each look finds these
	slowCommit  = 2 * time.Second        // once in slowEvery a look finds these; beyond it the pages do
	slowEvery   = time.Second
	younger     = 5 * time.Second // so much younger than the connection is a task that may be copied before the first round
	passEvery   = time.Second     // between two goes through all tasks
	pageRows    = 2000
	restFactor  = 49 // pages and looks at known copies rest so many times as long as they took: 2 % of a core
	mostBytes   = 4 << 20
	firstAgain  = time.Second // until a task in mirror_failure is tried again
	mostAgain   = time.Minute
)

// missed is an unfinished task without a known copy.
type missed struct {
	before bool // it was missing at an earlier look
	rounds int  // of tries in vain
	next   time.Time
	late   *amqp.DeferredConfirmation // of the last try that had no confirm in time
}

// publisher copies unfinished tasks that no copy is known of.
type publisher struct {
	*session
	missing map[uuid.UUID]*missed
	failing map[uuid.UUID]bool // with a row in mirror_failure, as of the last look

	looked  looked
	lookAt  time.Time
	restTo  time.Time   // pages and watches rest until then
	place   uuid.UUID   // of the page
	passAt  time.Time   // when the next pass begins
	whole   bool        // the pass began after the first round
	passed  bool        // all tasks were looked at on this connection
	watched []uuid.UUID // known copies that are still to be looked at
	watchAt time.Time
	tidyAt  time.Time
	covered time.Time
}

func newPublisher(s *session) *publisher {
	return &publisher{
		session: s, missing: map[uuid.UUID]*missed{}, failing: map[uuid.UUID]bool{},
		looked: looked{newest: firstID(s.connected), at: s.connected, last: s.connected, slow: s.connected},
	}
}

// run looks and publishes until ctx or the connection ends.
func (p *publisher) run(ctx context.Context) error {
	for pause.For(ctx, lookEvery) {
		if err := p.look(ctx); err != nil {
			p.databaseAway(ctx, err)
			continue
		}
		p.log.Reset("database")
		if err := p.send(ctx); err != nil {
			return err
		}
		p.show()
	}
	return nil
}

// look finds what is missing. Its errors are the database's.
func (p *publisher) look(ctx context.Context) error {
	began := p.d.Clock()
	if !began.Before(p.lookAt) {
		if err := p.lookNew(ctx); err != nil {
			return err
		}
		p.lookAt = began.Add(4 * p.d.Clock().Sub(began))
	}
	if began.Before(p.restTo) {
		return nil
	}
	began = p.d.Clock()
	for _, step := range []func(context.Context) error{p.page, p.watch, p.tidy} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	now := p.d.Clock()
	p.restTo = now.Add(restFactor * now.Sub(began))
	return nil
}

// looked is how far the looks for new tasks have come; all times are of our own clock.
type looked struct {
	newest     uuid.UUID // of the ids that they have seen
	at         time.Time // of the look that saw it first
	last, slow time.Time // of the last look, and of the last one for tasks that were committed slowly
}

// from returns from when on ids may be of tasks that the last look has not seen: those of one moment are not committed together. slow:
// it begins where the last slow look did. Who makes ids was at newest when that was seen, unless its clock is ahead of ours.
func (l *looked) from(now time.Time) (from time.Time, slow bool) {
	since, late := l.last, quickCommit
	if slow = now.Sub(l.slow) >= slowEvery; slow {
		since, late = l.slow, slowCommit
	}
	clock := madeAt(l.newest).Add(since.Sub(l.at))
	if clock.After(since) {
		clock = since
	}
	return clock.Add(-late), slow
}

// saw notes a look that has seen ids up to one.
func (l *looked) saw(up uuid.UUID, now time.Time, slow bool) {
	if l.last = now; slow {
		l.slow = now
	}
	if bytes.Compare(up[:], l.newest[:]) > 0 {
		l.newest, l.at = up, now
	}
}

// lookNew reads the tasks that came since the last look, and some before.
func (p *publisher) lookNew(ctx context.Context) error {
	now := p.d.Clock()
	from, slow := p.looked.from(now)
	after := firstID(from)
	for full := true; full; {
		page, err := p.rows.page(ctx, after, pageRows)
		if err != nil {
			return err
		}
		for _, s := range page {
			p.judge(s)
			after = s.id
		}
		full = len(page) == pageRows
	}
	p.looked.saw(after, now, slow)
	if p.passed && p.known.complete() {
		p.covered = now
		for id := range p.missing {
			if at := madeAt(id); at.Before(p.covered) {
				p.covered = at
			}
		}
	}
	return nil
}

// page looks at the next tasks of all, whatever their age.
func (p *publisher) page(ctx context.Context) error {
	if p.d.Clock().Before(p.passAt) {
		return nil
	}
	if p.place == uuid.Nil {
		p.whole = p.known.complete()
	}
	page, err := p.rows.page(ctx, p.place, pageRows)
	if err != nil {
		return err
	}
	for _, s := range page {
		p.judge(s)
		p.place = s.id
	}
	if len(page) == pageRows {
		return nil
	}
	p.place = uuid.Nil
	if p.whole {
		p.passed, p.passAt = true, p.d.Clock().Add(passEvery)
	}
	return nil
}

// watch looks at the next known copies: a task that has ended wakes the drainer.
func (p *publisher) watch(ctx context.Context) error {
	if len(p.watched) == 0 {
		now := p.d.Clock()
		if now.Before(p.watchAt) {
			return nil
		}
		p.watched, p.watchAt = p.known.all(), now.Add(passEvery)
	}
	n := min(mostRows, len(p.watched))
	found, err := p.rows.of(ctx, p.watched[:n])
	if err != nil {
		return err
	}
	for id, status := range found {
		p.judge(state{id: id, status: status})
	}
	p.watched = p.watched[n:]
	return nil
}

// judge compares one task with the known copies.
func (p *publisher) judge(s state) {
	has := p.known.has(s.id)
	if !unfinished(s.status) {
		delete(p.missing, s.id)
		if has {
			p.ended()
		}
		return
	}
	if has {
		delete(p.missing, s.id)
		return
	}
	fresh := !madeAt(s.id).Before(p.connected.Add(younger))
	// More would not fit: those beyond are found by a later pass.
	if p.missing[s.id] == nil && (fresh || p.known.complete()) && len(p.missing) < p.cfg.QueueMaxLength {
		p.missing[s.id] = &missed{}
	}
}

// tidy removes the rows of mirror_failure whose tasks have a copy or have ended, also those that earlier mirrors left. A row that an
// operator has removed is a try at once.
func (p *publisher) tidy(ctx context.Context) error {
	now := p.d.Clock()
	if now.Before(p.tidyAt) || !p.known.complete() {
		return nil
	}
	there := map[uuid.UUID]bool{}
	for after, more := "", true; more; {
		ids, last, err := p.rows.failures(ctx, after, mostRows)
		if err != nil {
			return err
		}
		for _, id := range ids {
			there[id] = true
		}
		after, more = last, last != ""
	}
	for id := range p.failing {
		if m := p.missing[id]; m != nil && !there[id] {
			m.next = time.Time{}
		}
	}
	p.failing = there
	ids := slices.Collect(maps.Keys(there))
	found, err := p.rows.of(ctx, ids)
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(ids, func(id uuid.UUID) bool { return unfinished(found[id]) && !p.known.has(id) })
	if err := p.remove(ctx, gone); err != nil {
		return err
	}
	p.tidyAt = now.Add(passEvery)
	return nil
}

// remove removes rows of mirror_failure.
func (p *publisher) remove(ctx context.Context, ids []uuid.UUID) error {
	if err := p.rows.removeFailures(ctx, ids); err != nil {
		return err
	}
	for _, id := range ids {
		delete(p.failing, id)
	}
	return nil
}

// room is how many copies may still be published: a full queue refuses rotation too.
func (p *publisher) room() int {
	return p.cfg.QueueMaxLength - reserve - max(p.known.count(), int(p.ready.Load()))
}

// due are the missing tasks that may be tried now, the oldest first, no more than fit. Few that are new wait until the next look: most
// tasks have ended by then, and need no copy.
func (p *publisher) due(ctx context.Context) []uuid.UUID {
	now := p.d.Clock()
	var ids []uuid.UUID
	few := len(p.missing) < mostRows
	for id, m := range p.missing {
		if !now.Before(m.next) && (m.before || !few) {
			ids = append(ids, id)
		}
		m.before = true
	}
	if len(ids) == 0 {
		return nil
	}
	if reason := p.link.refuses(); reason != "" {
		p.log.Log(ctx, slog.LevelWarn, "blocked", "mirror: RabbitMQ takes no messages", slog.String("reason", reason))
		p.set("RabbitMQ takes no messages: "+reason, nil)
		return nil
	}
	room := p.room()
	if room <= 0 {
		full := fmt.Sprintf("%d unfinished tasks have no copy: the queue has %d copies, and the mirror stops %d below RABBITMQ_QUEUE_MAX_LENGTH %d. "+
			"End or cancel tasks, or raise it", len(p.missing), max(p.known.count(), int(p.ready.Load())), reserve, p.cfg.QueueMaxLength)
		p.log.Log(ctx, slog.LevelWarn, "full", "mirror: the queue is full", slog.String("problem", full))
		p.set(full, nil)
		return nil
	}
	if p.log.Reset("blocked") || p.log.Reset("full") {
		p.set(p.topology, nil)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids[:min(len(ids), room)]
}

// batch are tasks whose copies are published together.
type batch struct {
	ids    []uuid.UUID
	copies []newCopy // of those of ids that are unfinished, the oldest first
	err    error
}

// newCopy is a copy that is to be published.
type newCopy struct {
	id      uuid.UUID
	message amqp.Publishing // without its round's mark
	err     error           // why the task cannot be copied
}

// read reads the rows of tasks, which are sorted, and makes their copies. What would be more than mostBytes the next look takes.
func (p *publisher) read(ctx context.Context, ids []uuid.UUID) batch {
	tasks, err := p.rows.tasks(ctx, ids)
	one := batch{ids: ids, err: err}
	size := 0
	for _, t := range tasks {
		id := uuid.MustParse(t.ID)
		message, err := copyOf(t)
		if size += len(message.Body); size > mostBytes && len(one.copies) > 0 {
			one.ids = ids[:slices.Index(ids, id)]
			break
		}
		one.copies = append(one.copies, newCopy{id, message, err})
	}
	return one
}

// send publishes what is due, batch by batch: while the confirms of one come the next is published, and the one after it read. It ends
// with the first batch of which a task has no copy. Its error ends the connection.
func (p *publisher) send(ctx context.Context) error {
	ids := p.due(ctx)
	if len(ids) == 0 {
		return nil
	}
	reading, stop := context.WithCancel(ctx)
	batches := make(chan batch)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(batches)
		for some := range slices.Chunk(ids, mostRows) {
			select {
			case batches <- p.read(reading, some):
			case <-reading.Done():
				return
			}
		}
	})
	defer reader.Wait()
	defer stop()
	// What came back of tries that are over is of no interest, but for a late confirm's.
	maps.DeleteFunc(p.publish.returned(), func(id string, _ string) bool {
		task, ok := parseID(id)
		return !ok || p.missing[task] == nil
	})
	var last *flight
	for one := range batches {
		if one.err != nil {
			p.databaseAway(ctx, one.err)
			break
		}
		if last != nil && !p.publishing.TryRLock() { // a round waits to begin
			if whole, err := p.settle(ctx, *last); err != nil || !whole {
				return err
			}
			last = nil
		}
		if last == nil {
			p.publishing.RLock()
		}
		now := p.launch(ctx, one)
		if last != nil {
			if whole, err := p.settle(ctx, *last); err != nil || !whole {
				_, nowErr := p.settle(ctx, now)
				return cmp.Or(err, nowErr)
			}
		}
		last = &now
	}
	if last == nil {
		return nil
	}
	_, err := p.settle(ctx, *last)
	return err
}

// flight is a batch under way: it was published once, and what became of it is still to be seen. publishing is held to read.
type flight struct {
	ids      []uuid.UUID
	out      outgoing
	failures []failure // of tasks that cannot be copied
}

// launch publishes a batch once.
func (p *publisher) launch(ctx context.Context, one batch) (f flight) {
	open := make(map[uuid.UUID]bool, len(one.copies))
	for _, c := range one.copies {
		open[c.id] = true
	}
	for _, id := range one.ids {
		if !open[id] {
			delete(p.missing, id) // it has ended meanwhile: never copied
		}
	}
	var messages []amqp.Publishing
	mark, back := p.mark(), p.publish.returned()
	for _, c := range one.copies {
		switch m := p.missing[c.id]; {
		case p.known.has(c.id):
			delete(p.missing, c.id) // the drainer has met it
			continue
		case m.late != nil && m.late.Acked() && back[c.message.MessageId] == "":
			p.has(c.id)
			continue
		case c.err != nil:
			f.failures = append(f.failures, p.failed(c.id, c.err.Error(), 0))
			continue
		}
		delete(back, c.message.MessageId)
		c.message.CorrelationId = mark
		messages, f.ids = append(messages, c.message), append(f.ids, c.id)
	}
	f.out = p.publish.begin(ctx, messages)
	return f
}

// settle ends a batch, with all its tries; whole: each task has a copy. Its error ends the connection.
func (p *publisher) settle(ctx context.Context, f flight) (whole bool, err error) {
	failures, err := p.tryAll(ctx, f)
	p.publishing.RUnlock()
	// Also when the connection has ended, and ctx with it: RabbitMQ was asked and has not confirmed.
	if dbErr := p.rows.putFailures(context.WithoutCancel(ctx), failures); dbErr != nil {
		p.databaseAway(ctx, dbErr)
	} else {
		for _, f := range failures {
			p.failing[f.id] = true
		}
	}
	return len(failures) == 0, err
}

// tryAll publishes what has no copy again, and returns the tasks that have none after all tries, or when the connection has ended.
func (p *publisher) tryAll(ctx context.Context, f flight) (failures []failure, err error) {
	failures = f.failures
	for try := 1; len(f.ids) > 0; try++ {
		if try > 1 {
			f.out = p.publish.begin(ctx, f.out.messages)
		}
		results := p.publish.wait(ctx, f.out)
		crash.Point("mirror.after_confirm")
		p.note(ctx, results)
		var again []amqp.Publishing
		var left []uuid.UUID
		bind, broken := false, ""
		for i, r := range results {
			id := f.ids[i]
			switch {
			case r.result == confirmed:
				p.has(id)
				continue
			case r.result == failed:
				if broken = r.reason; p.link.conn.IsClosed() { // else it is this process that stops
					failures = append(failures, p.failed(id, r.reason, try))
				}
				continue
			}
			bind = bind || r.result == returned
			p.missing[id].late = r.late
			if try == p.cfg.PublishRetries {
				failures = append(failures, p.failed(id, r.reason, try))
				continue
			}
			again, left = append(again, f.out.messages[i]), append(left, id)
		}
		if broken != "" {
			return failures, fmt.Errorf("publish: %s", broken)
		}
		if bind {
			if err := p.bindAgain(ctx); err != nil {
				return failures, err
			}
		}
		f.out.messages, f.ids = again, left
	}
	return failures, nil
}

// has notes a confirmed copy.
func (p *publisher) has(id uuid.UUID) {
	p.known.add(id)
	delete(p.missing, id)
}

// failed notes that a task has no copy after all its tries; it is tried again later.
func (p *publisher) failed(id uuid.UUID, reason string, tries int) failure {
	m := p.missing[id]
	m.next = p.d.Clock().Add(pause.Nth(m.rounds, firstAgain, mostAgain))
	m.rounds++
	return failure{id, reason, tries}
}

// show sets the figures once all tasks were compared with the queue on this connection.
func (p *publisher) show() {
	if !p.known.complete() {
		return
	}
	p.metrics.gauges.show(&figures{copies: p.known.count(), missing: len(p.missing), unknown: int(p.unknown.Load()), covered: p.covered})
}
