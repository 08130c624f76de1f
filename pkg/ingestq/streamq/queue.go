package streamq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/streammq/stream"
	pb "github.com/millweir/millweir/proto"
)

const (
	singleEvery = time.Second            // between two looks into the single stream
	rejoinPause = 500 * time.Millisecond // between two tries to make a deleted topic again
)

// Queue is one member of the group. It is safe for concurrent use.
type Queue struct {
	*Publisher
	consumer atomic.Pointer[streammq.Consumer] // another one, with the same name, after the topic was deleted
	name     string
	pauses   stream.Pauses // after reads that failed

	mu      sync.Mutex
	leave   context.CancelFunc // ends membership
	left    chan struct{}      // closed when it has ended; nil: there is none
	away    bool               // Run has ended, and was not called again
	drained time.Time          // when the single stream was last looked into
}

var (
	_ ingestq.PendingQueue = (*Queue)(nil)
	_ ingestq.Yielder      = (*Queue)(nil)
)

// New makes a member with a name that no other start of any process has; arguments as those of NewPublisher.
// It takes part from its first Read on, until Run ends.
func New(client rueidis.Client, cfg Config, log *slog.Logger, now func() time.Time, metrics *redisq.Metrics) (*Queue, error) {
	mq, err := cfg.queue(client, log, now)
	if err != nil {
		return nil, err
	}
	consumer, err := mq.NewConsumer(cfg.consumer(ingestq.HostPID()))
	if err != nil {
		return nil, err
	}
	q := &Queue{Publisher: newPublisher(client, mq, cfg, consumer.Name(), log, now, metrics), name: consumer.Name()}
	q.consumer.Store(consumer)
	return q, nil
}

// Name implements ingestq.Consumer.
func (q *Queue) Name() string { return q.name }

// Read implements ingestq.Consumer.
func (q *Queue) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	all, err := q.all(ctx)
	if err == nil {
		alive := all[:1]
		if q.cluster() {
			alive = all
		}
		err = each(alive, func(p *part) error { return p.KeepAlive(ctx) })
	}
	var deliveries []ingestq.Delivery
	if err == nil {
		q.join(ctx)
		deliveries, err = q.read(ctx, n, block, all)
	}
	if err != nil {
		q.pauses.Failed(ctx, block)
		return nil, ingestq.Failure(ctx, "read "+Topic, err)
	}
	q.pauses.Done()
	return deliveries, nil
}

// read asks the single stream, if it is time, and then the partitions.
func (q *Queue) read(ctx context.Context, n int, block time.Duration, all []*part) ([]ingestq.Delivery, error) {
	if all[0].number == single && q.timeForSingle() {
		some, err := all[0].Read(ctx, n, 0)
		if len(some) > 0 || err != nil {
			q.again(len(some) == n)
			return some, err
		}
	}
	began := q.now()
	polled, err := q.consumer.Load().Poll(ctx, n, block)
	if err != nil {
		return nil, err
	}
	q.cfg.Tracing.Received(ctx, began, polled)
	deliveries := make([]ingestq.Delivery, len(polled))
	for i, d := range polled {
		deliveries[i] = q.delivery(d)
	}
	return deliveries, nil
}

// timeForSingle tells whether the single stream is to be looked into now.
func (q *Queue) timeForSingle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	if age := now.Sub(q.drained); !q.drained.IsZero() && age >= 0 && age < singleEvery {
		return false
	}
	q.drained = now
	return true
}

// again lets the next Read look into the single stream too: it has more.
func (q *Queue) again(more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if more {
		q.drained = time.Time{}
	}
}

// delivery keeps the fields as they came when they are no envelope.
func (q *Queue) delivery(d *streammq.Delivery) ingestq.Delivery {
	id := idOf(d.Partition, d.ID)
	e, err := pb.Decode(d.Payload)
	if d.Err != nil {
		err = fmt.Errorf("%w: %w", pb.ErrMalformed, d.Err)
	}
	if err == nil {
		return ingestq.Decoded(id, e)
	}
	out := ingestq.Delivery{ID: id, Raw: make(map[string]string, len(d.Fields)/2), Err: fmt.Errorf("decode delivery %s: %w", id, err)}
	for i := 0; i+1 < len(d.Fields); i += 2 {
		out.Raw[d.Fields[i]] = d.Fields[i+1]
	}
	return out
}

// join takes part in the group: from the first Read on, and from the first one after a Run that follows another.
func (q *Queue) join(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left != nil || q.away {
		return
	}
	ctx, q.leave = context.WithCancel(context.WithoutCancel(ctx))
	left := make(chan struct{})
	q.left = left
	go func() {
		defer close(left)
		for {
			err := q.consumer.Load().Run(ctx)
			if ctx.Err() != nil {
				return
			}
			q.log.WarnContext(ctx, "streamq: membership ended, the topic is made again", slog.Any("error", err))
			if !q.rejoin(ctx) {
				return
			}
		}
	}()
}

// rejoin makes the topic and a member again after somebody has deleted them; what was in them comes back from the table.
// It returns false when ctx has ended.
func (q *Queue) rejoin(ctx context.Context) bool {
	cfg := q.cfg.consumer(q.name)
	cfg.Name = q.name
	for {
		err := q.Check(ctx)
		if err == nil || errors.Is(err, ErrFewer) {
			consumer, err := q.mq.NewConsumer(cfg)
			if err == nil {
				q.consumer.Store(consumer)
				return true
			}
		}
		if stream.Sleep(ctx, rejoinPause) != nil {
			return false
		}
	}
}

// depart ends the membership that Read began. A Read on the way begins no other one: the next Run lets it.
func (q *Queue) depart() {
	q.mu.Lock()
	leave, left := q.leave, q.left
	q.away = true
	q.mu.Unlock()
	if left != nil {
		leave()
		<-left
	}
	q.mu.Lock()
	q.left = nil
	q.mu.Unlock()
}

// Yield implements ingestq.Yielder.
func (q *Queue) Yield() { q.consumer.Load().Yield() }

// eachOf works on the ids of each part.
func (q *Queue) eachOf(ctx context.Context, ids []string, do func(p *part, ids []string) error) error {
	groups := byPart(ids)
	if len(groups) == 0 {
		return nil
	}
	all, err := q.all(ctx)
	if err != nil {
		return err
	}
	var some []*part
	for _, p := range all {
		if len(groups[p.number]) > 0 {
			some = append(some, p)
		}
	}
	return each(some, func(p *part) error { return do(p, groups[p.number]) })
}

// Ack implements ingestq.Consumer.
func (q *Queue) Ack(ctx context.Context, ids ...string) error {
	return q.eachOf(ctx, ids, func(p *part, ids []string) error { return p.Ack(ctx, ids...) })
}

// Adopt implements ingestq.Consumer.
func (q *Queue) Adopt(ctx context.Context, ids ...string) (map[string]bool, error) {
	var mu sync.Mutex
	found := make(map[string]bool, len(ids))
	for _, id := range ids {
		found[id] = false
	}
	err := q.eachOf(ctx, ids, func(p *part, ids []string) error {
		some, err := p.Adopt(ctx, ids...)
		mu.Lock()
		defer mu.Unlock()
		for id, ok := range some {
			found[idOf(p.number, id)] = ok
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Requeue implements ingestq.Consumer. A copy stays in its partition.
func (q *Queue) Requeue(ctx context.Context, copies []ingestq.Copy) (int, error) {
	ids := make([]string, 0, len(copies))
	groups := map[int][]ingestq.Copy{}
	for _, c := range copies {
		if number, entry, ok := splitID(c.ID); ok {
			ids = append(ids, c.ID)
			groups[number] = append(groups[number], ingestq.Copy{ID: entry, Envelope: c.Envelope})
		}
	}
	var total atomic.Int64
	err := q.eachOf(ctx, ids, func(p *part, _ []string) error {
		n, err := p.Requeue(ctx, groups[p.number])
		total.Add(int64(n))
		return err
	})
	return int(total.Load()), err
}

// Quarantine implements ingestq.Consumer.
func (q *Queue) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	return q.eachOf(ctx, []string{d.ID}, func(p *part, ids []string) error {
		d.ID = ids[0]
		return p.Quarantine(ctx, d)
	})
}

// Unpin implements ingestq.Consumer.
func (q *Queue) Unpin(ctx context.Context, idle time.Duration, ids ...string) error {
	return q.eachOf(ctx, ids, func(p *part, ids []string) error { return p.Unpin(ctx, idle, ids...) })
}

// DeadLetters implements ingestq.Consumer: a dead letter names the stream that its delivery came from.
func (q *Queue) DeadLetters(ctx context.Context, deadLetters []ingestq.DeadLetter) error {
	groups := map[int][]ingestq.DeadLetter{}
	for _, l := range deadLetters {
		number, entry, ok := splitID(l.SourceRecordID)
		if !ok {
			number, entry = single, l.SourceRecordID
		}
		l.SourceRecordID = entry
		groups[number] = append(groups[number], l)
	}
	var errs []error
	for number, some := range groups {
		p, err := q.at(ctx, number)
		if p == nil { // of the single stream that is gone, or of another transport
			p = q.old
		}
		if err == nil {
			err = p.DeadLetters(ctx, some)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Pending implements ingestq.Consumer: the single stream first, then partition by partition, in id order.
func (q *Queue) Pending(ctx context.Context, minIdle time.Duration, after string, n int) ([]ingestq.Pending, error) {
	all, err := q.all(ctx)
	if err != nil {
		return nil, err
	}
	from, entry := single, ""
	if number, rest, ok := splitID(after); ok {
		from, entry = number, rest
	}
	var page []ingestq.Pending
	for _, p := range all {
		if p.number < from || len(page) >= n {
			continue
		}
		if p.number > from {
			entry = ""
		}
		some, err := p.Pending(ctx, minIdle, entry, n-len(page))
		if err != nil {
			return nil, err
		}
		for _, one := range some {
			one.ID = idOf(p.number, one.ID)
			page = append(page, one)
		}
	}
	return page, nil
}

// Trim implements ingestq.Consumer.
func (q *Queue) Trim(ctx context.Context) (int64, error) {
	all, err := q.all(ctx)
	if err != nil {
		return 0, err
	}
	removed, err := gather(all, func(p *part) (int64, error) { return p.Trim(ctx) })
	total := int64(0)
	for _, n := range removed {
		total += n
	}
	return total, err
}

// Watermark implements ingestq.Consumer: the smallest of all streams counts (design D5).
func (q *Queue) Watermark(ctx context.Context) (ingestq.Watermark, error) {
	all, err := q.all(ctx)
	if err != nil {
		return ingestq.Watermark{}, err
	}
	watermarks, err := gather(all, func(p *part) (ingestq.Watermark, error) { return p.Watermark(ctx) })
	if err != nil {
		return ingestq.Watermark{}, err
	}
	return ingestq.Smallest(watermarks, q.cluster()), nil
}

// Ping implements ingestq.Consumer: it writes the heartbeat, since a full or read-only Redis answers a PING too.
func (q *Queue) Ping(ctx context.Context) error {
	all, err := q.all(ctx)
	if err != nil {
		return err
	}
	if q.cluster() {
		return each(all, func(p *part) error { return p.Queue.Ping(ctx) })
	}
	return all[len(all)-1].Ping(ctx)
}

// Run implements ingestq.Consumer: one heartbeat tells for all partitions that the member lives, on a cluster one for each.
func (q *Queue) Run(ctx context.Context) error {
	q.mu.Lock()
	q.away = false
	q.mu.Unlock()
	ingestq.Member{
		Queue: "streamq", HeartbeatTTL: q.cfg.HeartbeatTTL, ZombieInterval: q.cfg.ZombieInterval,
		Beat: q.beat, RemoveZombies: q.removeZombies, Log: q.log,
	}.Live(ctx)
	q.depart()
	q.leaveAll(context.WithoutCancel(ctx))
	return nil
}

// beat writes the heartbeat of the partitions, and that of the single stream while it is there.
func (q *Queue) beat(ctx context.Context) error {
	all, err := q.all(ctx)
	if err != nil {
		return err
	}
	err = q.Ping(ctx)
	if all[0].number == single && !q.cluster() {
		err = errors.Join(err, all[0].Queue.Ping(ctx))
	}
	return err
}

func (q *Queue) removeZombies(ctx context.Context) error {
	all, err := q.all(ctx)
	if err != nil {
		return err
	}
	return each(all, func(p *part) error {
		_, err := p.RemoveZombies(ctx)
		return err
	})
}

// leaveAll ends the heartbeat, and the membership where nothing is pending. A Redis that does not answer is no error.
func (q *Queue) leaveAll(ctx context.Context) {
	all, err := q.all(ctx)
	if err != nil {
		q.log.WarnContext(ctx, "streamq: did not leave the group", slog.Any("error", err))
		return
	}
	_ = each(all, func(p *part) error { p.Leave(ctx); return nil })
}
