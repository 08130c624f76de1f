package jointq

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
)

const (
	readSlice = 250 * time.Millisecond // the longest wait of one read of one queue, and so how long one goes on after Read returned
	heldFor   = 100 * time.Millisecond // how long what such a read brought waits for the next Read
	putBack   = 3 * time.Second        // the most time that its way back may take
)

// Member is a member of the group of one queue.
type Member interface {
	ingestq.PendingQueue
	Publishing
}

// Options say how two queues are joined.
type Options struct {
	// Second tells which types of task the second queue carries.
	Second func(taskType string) bool
	// SkipFirst and SkipSecond leave a queue's new deliveries to other members; all else is done for both.
	SkipFirst, SkipSecond bool
	// Cluster says that the queues may lie on nodes with clocks of their own.
	Cluster bool
	Log     *slog.Logger
}

// Queue is one member of both groups. It is safe for concurrent use.
type Queue struct {
	*Publisher
	members [number]Member
	o       Options
	hold    time.Duration

	mu      sync.Mutex
	sides   [number]side
	ahead   int           // deliveries that Read returned of the first queue less those of the second, while both had some
	changed chan struct{} // closed when a read has ended
	waiting int           // calls of Read that take what is held
	resting bool          // no Read since Yield: what a read still brings goes back at once
	timer   *time.Timer   // hands back what is held; nil: nothing is
	reads   sync.WaitGroup
	back    sync.Mutex // one returns what is held at a time, so that Run can wait for it
}

// side is what is known of the reads of one queue.
type side struct {
	skip         bool
	began, ended int  // numbers of the reads that wait; equal: none waits
	deep         bool // the last read brought as many as were asked for
	held         []ingestq.Delivery
	fails        int   // reads that failed
	err          error // of the last one
}

var (
	_ ingestq.PendingQueue = (*Queue)(nil)
	_ ingestq.Yielder      = (*Queue)(nil)
)

// New joins two members that have one name.
func New(one, two Member, o Options) *Queue {
	q := &Queue{
		Publisher: NewPublisher(one, two, o.Second), members: [number]Member{one, two}, o: o, hold: heldFor, changed: make(chan struct{}),
	}
	q.sides[first].skip, q.sides[second].skip = o.SkipFirst, o.SkipSecond
	return q
}

// Name implements ingestq.Consumer.
func (q *Queue) Name() string { return q.members[first].Name() }

// Read implements ingestq.Consumer. A queue that fails does not hold up the other one: only when both have failed is there an error.
func (q *Queue) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	if ds := q.fromBacklog(ctx, n); len(ds) > 0 {
		return ds, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting++
	defer func() {
		q.waiting--
		q.watch()
	}()
	end := time.Now().Add(block)
	var waits, failed [number]int // the reads that this call waits for, and the failures before it
	for at := range q.sides {
		failed[at] = q.sides[at].fails
	}
	for started := false; ; started = true {
		if ds := q.take(n); len(ds) > 0 {
			return ds, nil
		}
		if err := q.failure(failed); err != nil {
			return nil, ingestq.Failure(ctx, "read", err)
		}
		left := time.Until(end)
		switch over := started && left < time.Millisecond; {
		case !over && ctx.Err() == nil:
			for at := range q.sides {
				waits[at] = q.start(ctx, at, n, max(0, min(left, readSlice)))
			}
		case q.waits(waits): // a read under way is never abandoned
		case ctx.Err() != nil:
			return nil, ingestq.Failure(ctx, "read", ctx.Err())
		default:
			return nil, nil
		}
		changed := q.changed
		q.mu.Unlock()
		<-changed
		q.mu.Lock()
	}
}

// fromBacklog reads without waiting while the last read of a queue brought all that was asked for. The queue of which fewer
// deliveries were taken comes first, so that neither waits for the other to end, whatever the sizes of the reads.
func (q *Queue) fromBacklog(ctx context.Context, n int) (ds []ingestq.Delivery) {
	q.mu.Lock()
	q.resting = false
	behind, deep := q.behind(), q.sides[first].deep || q.sides[second].deep
	holds := q.holds()
	q.mu.Unlock()
	if !deep || holds || ctx.Err() != nil {
		return nil
	}
	for _, at := range [number]int{behind, second - behind} {
		want := n - len(ds)
		if want == 0 || q.sides[at].skip {
			continue
		}
		some, err := q.members[at].Read(ctx, want, 0)
		q.mu.Lock()
		ds = append(ds, withIDs(at, some)...)
		q.sides[at].deep = err == nil && len(some) == want
		q.took(at, len(some), q.sides[at].deep)
		q.mu.Unlock()
	}
	return ds
}

// behind is the queue of which fewer deliveries were taken.
func (q *Queue) behind() int {
	if q.ahead > 0 {
		return second
	}
	return first
}

// took counts what a Read returned of a queue. One that has no more has no claim on what comes later.
func (q *Queue) took(at, count int, more bool) {
	switch {
	case !more:
		q.ahead = 0
	case at == first:
		q.ahead += count
	default:
		q.ahead -= count
	}
}

// take takes at most n of what is held, of both queues half if both have it.
func (q *Queue) take(n int) (ds []ingestq.Delivery) {
	for at, share := q.behind(), (n+1)/2; len(ds) < n && q.holds(); at, share = second-at, n {
		s := &q.sides[at]
		some := min(share, n-len(ds), len(s.held))
		ds, s.held = append(ds, s.held[:some]...), s.held[some:]
		q.took(at, some, len(s.held) > 0)
	}
	return ds
}

// holds reports whether reads have brought what nobody has taken yet.
func (q *Queue) holds() bool { return len(q.sides[first].held)+len(q.sides[second].held) > 0 }

// failure is the error of both queues when each that is read has failed since a call began; else nil.
func (q *Queue) failure(before [number]int) error {
	var errs []error
	for at := range q.sides {
		s := &q.sides[at]
		if !s.skip && s.fails == before[at] {
			return nil
		}
		errs = append(errs, s.err)
	}
	return errors.Join(errs...)
}

// start begins a read of a queue unless one waits, and returns its number.
func (q *Queue) start(ctx context.Context, at, n int, block time.Duration) int {
	s := &q.sides[at]
	if s.skip || s.began != s.ended {
		return s.began
	}
	s.began++
	ctx = context.WithoutCancel(ctx) // it outlives the call that began it, and ends by itself
	q.reads.Go(func() {
		ds, err := q.members[at].Read(ctx, n, block)
		q.mu.Lock()
		defer q.mu.Unlock()
		if err != nil {
			s.fails++
			if s.err == nil {
				q.o.Log.WarnContext(ctx, "jointq: a queue cannot be read", slog.Any("error", err))
			}
		}
		s.err, s.deep = err, err == nil && len(ds) >= n
		s.held = append(s.held, withIDs(at, ds)...)
		s.ended = s.began
		q.watch()
		close(q.changed)
		q.changed = make(chan struct{})
	})
	return s.began
}

// waits reports whether one of the reads that a call waits for has not ended.
func (q *Queue) waits(numbers [number]int) bool {
	for at := range q.sides {
		if q.sides[at].ended < numbers[at] {
			return true
		}
	}
	return false
}

// wanted reports whether what is held has a Read that takes it.
func (q *Queue) wanted() bool { return q.waiting > 0 && !q.resting }

// watch lets what is held go back in time, unless somebody takes it.
func (q *Queue) watch() {
	switch {
	case !q.holds() || q.wanted():
		if q.timer != nil {
			q.timer.Stop()
			q.timer = nil
		}
	case q.resting && q.timer != nil:
		q.timer.Reset(0)
	case q.timer == nil:
		after := q.hold
		if q.resting {
			after = 0
		}
		q.timer = time.AfterFunc(after, q.handBack)
	}
}

// handBack returns what is held to its queues. What cannot be decoded or copied stays with the member, where reconciling finds it.
func (q *Queue) handBack() {
	q.back.Lock()
	defer q.back.Unlock()
	q.mu.Lock()
	if q.wanted() { // the time ran out just as a Read began
		q.timer = nil
		q.mu.Unlock()
		return
	}
	var copies []ingestq.Copy
	for at := range q.sides {
		for _, d := range q.sides[at].held {
			if e := d.Envelope(); e != nil {
				copies = append(copies, ingestq.Copy{ID: d.ID, Envelope: e})
			}
		}
		q.sides[at].held = nil
	}
	q.timer = nil
	q.mu.Unlock()
	if len(copies) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), putBack)
	defer cancel()
	if _, err := q.Requeue(ctx, copies); err != nil {
		q.o.Log.WarnContext(ctx, "jointq: deliveries that were read are left to reconciling", slog.Int("count", len(copies)), slog.Any("error", err))
	}
}

// Yield implements ingestq.Yielder.
func (q *Queue) Yield() {
	q.mu.Lock()
	q.resting = true
	q.watch()
	q.mu.Unlock()
	for _, m := range q.members {
		if y, ok := m.(ingestq.Yielder); ok {
			y.Yield()
		}
	}
}

// Run implements ingestq.Consumer. Before it leaves the groups it returns what reads have brought since the last Read.
func (q *Queue) Run(ctx context.Context) error {
	members, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	var errs [number]error
	var running sync.WaitGroup
	for at, m := range q.members {
		running.Go(func() {
			errs[at] = m.Run(members)
			leave() // one that ends early is begun again with the other
		})
	}
	select {
	case <-ctx.Done():
		q.Yield()
		q.reads.Wait()
		q.handBack()
	case <-members.Done():
	}
	leave()
	running.Wait()
	return errors.Join(errs[:]...)
}

// Ack implements ingestq.Consumer.
func (q *Queue) Ack(ctx context.Context, ids ...string) error {
	return q.eachOf(ids, func(m Member, _ int, ids []string) error { return m.Ack(ctx, ids...) })
}

// eachOf works on the ids of each queue.
func (q *Queue) eachOf(ids []string, do func(m Member, at int, ids []string) error) error {
	var errs []error
	for at, some := range grouped(ids) {
		if len(some) > 0 {
			errs = append(errs, do(q.members[at], at, some))
		}
	}
	return errors.Join(errs...)
}

// Adopt implements ingestq.PendingQueue.
func (q *Queue) Adopt(ctx context.Context, ids ...string) (map[string]bool, error) {
	found := make(map[string]bool, len(ids))
	err := q.eachOf(ids, func(m Member, at int, ids []string) error {
		some, err := m.Adopt(ctx, ids...)
		for id, ok := range some {
			found[idOf(at, id)] = ok
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Requeue implements ingestq.PendingQueue. A copy stays in its queue.
func (q *Queue) Requeue(ctx context.Context, copies []ingestq.Copy) (int, error) {
	var groups [number][]ingestq.Copy
	for _, c := range copies {
		at, own := splitID(c.ID)
		groups[at] = append(groups[at], ingestq.Copy{ID: own, Envelope: c.Envelope})
	}
	total := 0
	var errs []error
	for at, some := range groups {
		if len(some) > 0 {
			n, err := q.members[at].Requeue(ctx, some)
			total, errs = total+n, append(errs, err)
		}
	}
	return total, errors.Join(errs...)
}

// Quarantine implements ingestq.Consumer.
func (q *Queue) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	at, own := splitID(d.ID)
	d.ID = own
	return q.members[at].Quarantine(ctx, d)
}

// Unpin implements ingestq.PendingQueue.
func (q *Queue) Unpin(ctx context.Context, idle time.Duration, ids ...string) error {
	return q.eachOf(ids, func(m Member, _ int, ids []string) error { return m.Unpin(ctx, idle, ids...) })
}

// DeadLetters implements ingestq.DeadLetterWriter: a dead letter names the stream that its delivery came from.
func (q *Queue) DeadLetters(ctx context.Context, deadLetters []ingestq.DeadLetter) error {
	var groups [number][]ingestq.DeadLetter
	for _, l := range deadLetters {
		at, own := splitID(l.SourceRecordID)
		l.SourceRecordID = own
		groups[at] = append(groups[at], l)
	}
	var errs []error
	for at, some := range groups {
		if len(some) > 0 {
			errs = append(errs, q.members[at].DeadLetters(ctx, some))
		}
	}
	return errors.Join(errs...)
}

// Pending implements ingestq.PendingQueue: the first queue's, and then the second's.
func (q *Queue) Pending(ctx context.Context, minIdle time.Duration, after string, n int) ([]ingestq.Pending, error) {
	from, own := splitID(after)
	var page []ingestq.Pending
	for at := from; at < number && len(page) < n; at, own = at+1, "" {
		some, err := q.members[at].Pending(ctx, minIdle, own, n-len(page))
		if err != nil {
			return nil, err
		}
		for _, p := range some {
			p.ID = idOf(at, p.ID)
			page = append(page, p)
		}
	}
	return page, nil
}

// Trim implements ingestq.PendingQueue.
func (q *Queue) Trim(ctx context.Context) (int64, error) {
	total := int64(0)
	var errs []error
	for _, m := range q.members {
		n, err := m.Trim(ctx)
		total, errs = total+n, append(errs, err)
	}
	return total, errors.Join(errs...)
}

// Watermark implements ingestq.Consumer: the smaller one counts (design D5).
func (q *Queue) Watermark(ctx context.Context) (ingestq.Watermark, error) {
	watermarks := make([]ingestq.Watermark, number)
	for at, m := range q.members {
		w, err := m.Watermark(ctx)
		if err != nil {
			return ingestq.Watermark{}, err
		}
		watermarks[at] = w
	}
	return ingestq.Smallest(watermarks, q.o.Cluster), nil
}

// Stats implements ingestq.Consumer.
func (q *Queue) Stats(ctx context.Context) (ingestq.Stats, error) {
	all := make([]ingestq.Stats, number)
	for at, m := range q.members {
		s, err := m.Stats(ctx)
		if err != nil {
			return ingestq.Stats{Lag: -1}, err
		}
		all[at] = s
	}
	return ingestq.Sum(all...), nil
}

// Ping implements ingestq.Consumer.
func (q *Queue) Ping(ctx context.Context) error {
	var errs []error
	for _, m := range q.members {
		errs = append(errs, m.Ping(ctx))
	}
	return errors.Join(errs...)
}
