package mirror

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
)

// opened is a session with queues of its own in the shared RabbitMQ.
func opened(t *testing.T, db taskstate.Database) *session {
	t.Helper()
	cfg := NewDefaultConfig(labserver.RabbitMQ(t).URL(""))
	own := "t" + rand.Text()[:8] + "."
	cfg.Exchange, cfg.Queue, cfg.RoutingKey, cfg.DLX = own+"durable", own+"quorum", own+"key", own+"dlx"
	m, err := New(cfg, Deps{DB: db, Name: "test", Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	require.NoError(t, err)
	l, err := dial(t.Context(), cfg, "test")
	require.NoError(t, err)
	t.Cleanup(l.close)
	_, err = l.declare()
	require.NoError(t, err)
	s, err := m.session(l, "")
	require.NoError(t, err)
	return s
}

// A queue that RabbitMQ does not make, as one of an earlier version, is not said to be one that the user may not declare.
func TestAQueueThatIsRefused(t *testing.T) {
	t.Parallel()
	s := opened(t, taskstoretest.Open(t))
	_, err := s.link.ensure(queueStep("queue", s.cfg.Queue+".none", amqp.Table{"x-queue-type": "quorum", "x-max-length": int64(-1)}), "")
	require.ErrorContains(t, err, "RabbitMQ refuses the queue "+s.cfg.Queue+".none, maybe because it is too old (3.8.9 is): ")
	require.ErrorContains(t, err, "x-max-length")
}

// What came back of a batch is known when that batch is looked at, also when the one before it was looked at in between.
func TestReturnsAreOfTheirBatch(t *testing.T) {
	t.Parallel()
	s := opened(t, taskstoretest.Open(t))
	messages := func(ids ...string) (out []amqp.Publishing) {
		for _, id := range ids {
			out = append(out, amqp.Publishing{MessageId: id})
		}
		return out
	}
	first := s.publish.begin(t.Context(), messages("a", "b"))
	for _, d := range first.waits {
		require.True(t, d.Wait())
	}
	require.NoError(t, s.link.once(func(ch *amqp.Channel) error {
		return ch.QueueUnbind(s.cfg.Queue, s.cfg.RoutingKey, s.cfg.Exchange, nil)
	}))
	second := s.publish.begin(t.Context(), messages("c", "d"))
	for _, d := range second.waits {
		require.True(t, d.Wait())
	}
	for want, o := range map[result]outgoing{confirmed: first, returned: second} {
		for _, one := range s.publish.wait(t.Context(), o) {
			require.Equal(t, want, one.result)
		}
	}
	require.Empty(t, s.publish.back)
	_, err := s.link.declare()
	require.NoError(t, err)
	require.Equal(t, confirmed, s.publish.send(t.Context(), messages("c"))[0].result, "what came back before is forgotten")
}

// A confirm that came after its timeout makes no copy of a message that came back, whatever was published between.
func TestALateConfirmOfWhatCameBackIsNoCopy(t *testing.T) {
	t.Parallel()
	store := taskstoretest.Open(t)
	p := newPublisher(opened(t, store))
	id := queued(t, store, 1)[0]
	require.NoError(t, p.link.once(func(ch *amqp.Channel) error {
		return ch.QueueUnbind(p.cfg.Queue, p.cfg.RoutingKey, p.cfg.Exchange, nil)
	}))
	late := p.publish.begin(t.Context(), []amqp.Publishing{{MessageId: id.String()}}).waits[0]
	require.True(t, late.Wait())
	_, err := p.link.declare()
	require.NoError(t, err)
	p.missing[id] = &missed{before: true, late: late}
	require.Equal(t, confirmed, p.publish.send(t.Context(), []amqp.Publishing{{MessageId: "another"}})[0].result)
	require.NoError(t, p.send(t.Context()))
	require.True(t, p.known.has(id))
	ready, err := p.drain.ready()
	require.NoError(t, err)
	require.Equal(t, 2, ready)
}

// A copy that could not be rotated before a stop stays, although what was taken after it is acknowledged.
func TestAStopLeavesWhatWasNotRotated(t *testing.T) {
	t.Parallel()
	d := newDrainer(opened(t, taskstoretest.Open(t)))
	for _, id := range []string{"first", "second"} {
		require.Equal(t, confirmed, d.publish.send(t.Context(), []amqp.Publishing{{MessageId: id}})[0].result)
	}
	feed, err := d.drain.consume(2)
	require.NoError(t, err)
	copies, err := feed.wait(true)
	require.NoError(t, err)
	require.Len(t, copies, 2)
	require.NoError(t, d.link.once(func(ch *amqp.Channel) error {
		return ch.QueueUnbind(d.cfg.Queue, d.cfg.RoutingKey, d.cfg.Exchange, nil)
	}))
	stopped, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, d.rotate(stopped, copies[:1], "")) // comes back, and binds again
	require.NoError(t, d.rotate(stopped, copies[1:], ""))
	require.NoError(t, d.drain.ch.Close()) // gives back, a little later, what is not acknowledged
	require.Eventually(t, func() bool {
		ready, err := d.publish.ready()
		return err == nil && ready == 2
	}, time.Minute, time.Millisecond)
}

// queued makes tasks and returns their ids.
func queued(t *testing.T, store taskstate.Store, n int) (ids []uuid.UUID) {
	t.Helper()
	var tasks []taskstate.NewTask
	for range n {
		id := uuid.Must(uuid.NewV7())
		ids = append(ids, id)
		tasks = append(tasks, taskstate.NewTask{Task: taskstate.Task{ID: id.String(), UserID: "anna", Type: "document", Channel: "http", MaxAttempts: 3}})
	}
	_, err := store.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return tasks, nil })
	require.NoError(t, err)
	return ids
}

// gated is a database whose second read waits.
type gated struct {
	taskstate.Database
	reads atomic.Int32
	open  chan struct{}
}

func (g *gated) GetMany(ctx context.Context, scope taskstate.Scope, ids []string) ([]taskstate.Task, error) {
	if g.reads.Add(1) == 2 {
		<-g.open
	}
	return g.Database.GetMany(ctx, scope, ids)
}

// While batches follow each other some batch is always under way. A round that waits begins all the same, when no copy is under way that
// would have the mark of the round before.
func TestARoundBeginsBetweenBatches(t *testing.T) {
	t.Parallel()
	store := taskstoretest.Open(t)
	db := &gated{Database: store, open: make(chan struct{})}
	p := newPublisher(opened(t, db))
	for _, id := range queued(t, store, 3*mostRows) {
		p.missing[id] = &missed{}
	}
	sent := make(chan error)
	go func() { sent <- p.send(t.Context()) }()
	for ready := 0; ready < mostRows; pause.For(t.Context(), time.Millisecond) { // until the first batch is under way
		var err error
		ready, err = p.drain.ready()
		require.NoError(t, err)
	}
	begun := make(chan int)
	go func() {
		p.publishing.Lock()
		known := p.known.count()
		p.known.begin()
		p.publishing.Unlock()
		begun <- known
	}()
	for p.publishing.TryRLock() { // until the round waits
		p.publishing.RUnlock()
		pause.For(t.Context(), time.Millisecond)
	}
	close(db.open)
	require.Equal(t, mostRows, <-begun)
	require.NoError(t, <-sent)
	require.Equal(t, 3*mostRows, p.known.count())
	require.Empty(t, p.missing)
	ready, err := p.drain.ready()
	require.NoError(t, err)
	require.Equal(t, 3*mostRows, ready)
}

// A task that ends before the next look is never copied, unless so many are new that they fill a batch.
func TestTasksThatEndSoonAreNotCopied(t *testing.T) {
	t.Parallel()
	store := taskstoretest.Open(t)
	p := newPublisher(opened(t, store))
	p.connected = p.connected.Add(-time.Minute)
	look := func(copies int) {
		t.Helper()
		require.NoError(t, p.lookNew(t.Context()))
		require.NoError(t, p.send(t.Context()))
		ready, err := p.drain.ready()
		require.NoError(t, err)
		require.Equal(t, copies, ready)
	}
	ids := queued(t, store, 2)
	look(0)
	_, err := store.Apply(t.Context(), taskstate.Batch{IDs: []string{ids[0].String()}, Scope: taskstate.System(), Decide: taskstate.Each(
		func(m taskstate.DBClock, cur taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(m, cur, taskstate.Actor{Kind: taskstate.ActorOperator, Name: "olga"}, taskstate.ReasonCancelled, "")
		})})
	require.NoError(t, err)
	look(1)
	require.True(t, p.known.has(ids[1]))
	queued(t, store, mostRows)
	look(1 + mostRows)
}

// A look for new tasks reads what may have been committed since the last one, whatever the clock of who makes ids says, and not what
// earlier looks have seen for sure.
func TestALookReadsWhatMayBeNew(t *testing.T) {
	t.Parallel()
	start := time.UnixMilli(1_800_000_000_000)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	for name, ahead := range map[string]time.Duration{"in step": 0, "an hour behind": -time.Hour, "an hour ahead": time.Hour} {
		l := looked{newest: firstID(after(ahead)), at: start, last: start, slow: start}
		want := func(at, from time.Duration, slow bool) {
			t.Helper()
			if ahead < 0 { // else our own clock is earlier
				from += ahead
			}
			gotFrom, gotSlow := l.from(after(at))
			require.Equal(t, []any{after(from), slow}, []any{gotFrom, gotSlow}, name)
		}
		saw := func(up, at time.Duration, slow bool) { l.saw(firstID(after(up+ahead)), after(at), slow) }

		want(100*time.Millisecond, -quickCommit, false)
		saw(100*time.Millisecond, 100*time.Millisecond, false)
		want(200*time.Millisecond, 100*time.Millisecond-quickCommit, false)
		saw(0, 200*time.Millisecond, false) // nothing new: its clock goes on
		want(900*time.Millisecond, 200*time.Millisecond-quickCommit, false)
		want(time.Second, -slowCommit, true)
		saw(0, time.Second, true)
		want(1100*time.Millisecond, time.Second-quickCommit, false)
		want(2*time.Second, time.Second-slowCommit, true)
		want(20*time.Second, time.Second-slowCommit, true) // the database was away
	}
}
