package mirror_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	pb "github.com/millweir/millweir/proto"
)

// Every unfinished task has one copy that says what its row says; what has ended has none.
func TestUnfinishedTasksHaveOneCopy(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		old := w.submit(3)
		w.suspend(old[1])
		w.cancel(old[2])
		m := w.start()
		m.knows(2)
		fresh := w.submit(2)
		m.knows(4)
		m.stop()
		w.copies(4)
		got := w.messages()
		open := slices.Concat(old[:2], fresh)
		require.Equal(t, once(open), byTask(t, got))
		for _, d := range got {
			row, err := w.tasks.Get(t.Context(), taskstate.System(), d.MessageId)
			require.NoError(t, err)
			e, err := pb.Decode(d.Body)
			require.NoError(t, err)
			require.Equal(t, row.ID, e.GetTaskId())
			require.Equal(t, row.IdempotencyKey, e.GetIdempotencyKey())
			require.EqualValues(t, amqp.Persistent, d.DeliveryMode)
			require.Equal(t, amqp.Table{
				"taskId": row.ID, "idempotencyKey": row.IdempotencyKey, "workflowId": "", "channel": "http", "traceparent": row.TraceParent,
			}, withoutCount(d.Headers))
		}
		m = w.start()
		m.knows(4)
		w.cancel(open...)
		w.copies(0)
		m.knows(0)
		require.Zero(t, w.ready(dlq(w)))
	})
}

// The copies of large tasks do not all fit into one batch: each is made, once.
func TestLargeTasksHaveOneCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labserver.RabbitMQ(t), labserver.MySQLDatabase(t))
	var tasks []taskstate.NewTask
	var ids []string
	for range 40 { // of 250 KB: three batches
		ids = append(ids, uuid.Must(uuid.NewV7()).String())
		tasks = append(tasks, taskstate.NewTask{
			Task: taskstate.Task{
				ID: ids[len(ids)-1], UserID: "anna", Type: "document", Channel: "http", MaxAttempts: 3, Payload: []byte(`"` + strings.Repeat("x", 250<<10) + `"`),
			},
			Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "anna"},
		})
	}
	w.insert(tasks...)
	m := w.start()
	m.knows(len(ids))
	m.stop()
	w.copies(len(ids))
	require.Equal(t, once(ids), byTask(t, w.messages()))
}

func withoutCount(headers amqp.Table) amqp.Table { delete(headers, "x-delivery-count"); return headers }

func dlq(w *world) string { return strings.TrimSuffix(w.cfg.DLX, "dlx") + "dlq" }

// A mirror that starts knows nothing: it publishes nothing old before its first round is over.
func TestARestartAddsNoCopy(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(300) // a round of them takes longer than the first look
	for range 3 {
		m := w.start()
		m.knows(len(ids))
		m.stop()
		w.copies(len(ids))
	}
	require.Equal(t, once(ids), byTask(t, w.messages()))
}

// Rounds count no delivery, and copies of what is unfinished leave the head: with a limit of one delivery a copy that was given back
// twice would be a dead letter.
func TestRotationCountsNoDelivery(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	w.cfg.DeliveryLimit = 1
	ids := w.submit(5)
	w.suspend(ids...)
	m := w.start()
	m.knows(5)
	for range 4 { // each asks for a round
		more := w.submit(1)
		m.knows(6)
		w.cancel(more...)
		m.knows(5)
	}
	w.copies(5)
	require.Zero(t, w.ready(dlq(w)))
	m.stop()
	for _, d := range w.messages() {
		require.Zero(t, d.Headers["x-delivery-count"])
	}
}

// What the queue lost is copied again, whether it was purged, removed or lost its binding.
func TestALostQueueHeals(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(20)
	m := w.start()
	m.knows(20)
	_, err := w.ch.QueuePurge(w.cfg.Queue, false)
	require.NoError(t, err)
	w.copies(20)
	_, err = w.ch.QueueDelete(w.cfg.Queue, false, false, false)
	require.NoError(t, err)
	w.copies(20)
	m.knows(20)
	require.NoError(t, w.ch.QueueUnbind(w.cfg.Queue, w.cfg.RoutingKey, w.cfg.Exchange, nil))
	ids = append(ids, w.submit(1)...)
	m.knows(21)
	w.copies(21)
	back, _ := m.gauge("rabbit_publish_total", "returned")
	require.NotZero(t, back, "it came back although it was confirmed")
	m.stop()
	w.copies(21)
	require.Equal(t, once(ids), byTask(t, w.messages()))
}

// What no row belongs to, and what no program can read, goes round and is counted. It is never lost, and brings nothing down.
func TestForeignMessagesAreKept(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(2)
	m := w.start()
	m.knows(2)
	lost := &pb.TaskEnvelope{SchemaVersion: 1, TaskId: uuid.Must(uuid.NewV7()).String(), Type: "document"}
	body, err := pb.Encode(lost)
	require.NoError(t, err)
	huge := amqp.Table{"long": strings.Repeat("x", 100_000), "list": []any{int32(1), "two", nil}, "CC": []any{"elsewhere"}, "time": time.Unix(1, 0)}
	w.put(amqp.Publishing{MessageId: lost.GetTaskId(), Body: body})
	w.put(amqp.Publishing{MessageId: ids[0], Body: []byte("no envelope, but the id of a task")})
	w.put(amqp.Publishing{Headers: huge, UserId: "guest", Expiration: "3600000", Body: nil})
	w.put(amqp.Publishing{MessageId: "x", Body: []byte(strings.Repeat("{", 300_000))})
	w.cancel(ids[0]) // asks for a round
	w.eventually("they are counted", func() bool { n, _ := m.gauge("mirror_unknown_copies"); return n == 4 })
	w.copies(5)
	m.stop()
	got := w.messages()
	require.Len(t, got, 5)
	for _, d := range got {
		if long, ok := d.Headers["long"].(string); ok {
			require.Equal(t, huge["long"], long)
			require.Equal(t, huge["list"], d.Headers["list"])
		}
		require.Empty(t, d.UserId)
		require.Empty(t, d.Expiration)
	}
	m = w.start() // the database knows nothing of lost: a row that is made of its copy has one already
	m.knows(2)
	w.insert(taskstate.NewTask{
		Task:  taskstate.Task{ID: lost.GetTaskId(), UserID: "anna", Type: "document", Channel: "http", MaxAttempts: 3},
		Actor: operator,
	})
	w.suspend(ids[1])
	w.cancel(ids[1])
	w.copies(4)
	m.knows(1)
	w.cancel(lost.GetTaskId())
	w.copies(3)
}

// A second copy stays until the task has ended: the first may be gone again. Then both go.
func TestASecondCopyStays(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(2)
	m := w.start()
	m.knows(2)
	m.stop()
	w.copies(2)
	first := w.messages()
	for _, d := range first {
		w.put(amqp.Publishing{MessageId: d.MessageId, Headers: d.Headers, Body: d.Body})
	}
	w.copies(4)
	m = w.start()
	m.knows(2)
	more := w.submit(1)
	m.knows(3)
	w.cancel(more...) // asks for a round
	m.knows(2)
	w.copies(4)
	w.cancel(ids...)
	w.copies(0)
}

// watched is a database that tells when the row of one task alone was read: with a Prefetch of 1 a drainer reads the rows of single tasks.
type watched struct {
	taskstate.Database
	id   string
	read func(n int) // for the nth time
	n    int
}

func (d *watched) Read(ctx context.Context, f taskstate.ReadFunc) error {
	alone := false
	err := d.Database.Read(ctx, func(ctx context.Context, tx taskstate.Tx) error { return f(ctx, watchedTx{tx, d.id, &alone}) })
	if err == nil && alone {
		d.n++
		d.read(d.n)
	}
	return err
}

type watchedTx struct {
	taskstate.Tx
	id    string
	alone *bool
}

func (tx watchedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	*tx.alone = *tx.alone || len(args) == 1 && args[0] == tx.id
	return tx.Tx.QueryContext(ctx, query, args...)
}

// putCopy publishes a copy of a task that the mirror did not make.
func (w *world) putCopy(id string) {
	w.t.Helper()
	body, err := pb.Encode(&pb.TaskEnvelope{SchemaVersion: 1, TaskId: id, Type: "document"})
	require.NoError(w.t, err)
	w.put(amqp.Publishing{MessageId: id, Body: body})
}

// A task with two copies ends when the first was met in a round, and the second was not: the first, which is at the tail, is met again soon,
// although its task is not known any more.
func TestATaskThatEndsBetweenItsCopiesLeavesNone(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	w.cfg.Prefetch = 1
	m := w.start()
	m.knows(0) // the queue is there
	m.stop()
	ids := w.submit(3)
	for _, id := range []string{ids[0], ids[1], ids[2], ids[2]} {
		w.putCopy(id)
	}
	w.copies(4)
	gone := make(chan struct{})
	m = w.startOn(&watched{Database: w.tasks, id: ids[2], read: func(n int) {
		switch n {
		case 1:
			w.cancel(ids[2])
		case 3:
			close(gone)
		}
	}})
	w.await(gone)
	m.stop()
	w.copies(2)
	require.Equal(t, once(ids[:2]), byTask(t, w.messages()))
}

// A copy of an ended task that comes after the round, as from the connection of a process that died, is met soon.
func TestACopyThatComesBackAfterTheRoundGoes(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	w.cfg.Prefetch = 1
	ids := w.submit(3)
	w.cancel(ids[2])
	gone := make(chan struct{})
	m := w.startOn(&watched{Database: w.tasks, id: ids[2], read: func(n int) {
		if n == 1 {
			close(gone)
		}
	}})
	m.knows(2) // nothing asks for another round
	w.putCopy(ids[2])
	w.await(gone)
	m.stop()
	w.copies(2)
	require.Equal(t, once(ids[:2]), byTask(t, w.messages()))
}

// A round beside a consumer that holds copies does not take them for lost: there is no second copy when they come back.
func TestCopiesThatOthersHoldAreNotMadeAgain(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(3)
	m := w.start()
	m.knows(3)
	w.copies(3)
	require.NoError(t, w.ch.Qos(2, 0, false))
	held, err := w.ch.Consume(w.cfg.Queue, "", false, false, false, false, nil)
	require.NoError(t, err)
	for range 2 {
		<-held
	}
	for range 2 { // the second round is after the end of the first
		more := w.submit(1)
		m.knows(4)
		w.cancel(more...) // asks for a round
		m.knows(3)
	}
	require.NoError(t, w.ch.Close())
	w.copies(3)
	m.stop()
	w.copies(3)
	require.Equal(t, once(ids), byTask(t, w.messages()))
}

// A dead letter of the queue is not lost, and its task gets another copy.
func TestDeadLettersAreKept(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	w.cfg.DeliveryLimit = 1
	ids := w.submit(1)
	m := w.start()
	m.knows(1)
	m.stop()
	for range 4 { // bounded, not exact
		_ = w.messages()
	}
	w.eventually("it is a dead letter", func() bool { return w.ready(dlq(w)) == 1 })
	m = w.start()
	m.knows(1)
	w.copies(1)
	require.Equal(t, 1, w.ready(dlq(w)))
	m.stop()
	require.Equal(t, once(ids), byTask(t, w.messages()))
}

// One of several mirrors acts; when it stops, or loses its connection, it leaves its lease to the next one.
func TestOneMirrorActs(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.submit(3)
		direct := w.cfg.URL
		address, cut := relay(t, w.server.Addr, func(out, in net.Conn) { _, _ = io.Copy(out, in) })
		w.cfg.URL = strings.Replace(direct, w.server.Addr, address, 1)
		first := w.start()
		first.knows(3)
		w.cfg.URL = direct
		second := w.start()
		second.standsBy()
		_, shown := second.gauge("mirror_copies")
		require.False(t, shown, "absent, not 0")
		cut()
		second.knows(3)
		third := w.start()
		third.standsBy()
		second.stop()
		third.knows(3)
		w.copies(3)
	})
}

// RabbitMQ 4 leaves a binding without an answer while most nodes are away, also one that is there: nobody waits for it for long.
func TestABindingWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(3)
	m := w.start()
	m.knows(3)
	m.stop()
	var binds atomic.Int32
	address, _ := relay(t, w.server.Addr, func(out, in net.Conn) { withoutBinds(out, in, &binds) })
	w.cfg.URL = strings.Replace(w.cfg.URL, w.server.Addr, address, 1)
	m = w.start()
	m.knows(3)
	ids = append(ids, w.submit(2)...)
	m.knows(5)
	m.stop()
	require.EqualValues(t, 2, binds.Load())
	w.copies(5)
	require.Equal(t, once(ids), byTask(t, w.messages()))
}

// withoutBinds passes on what a client sends but for the frames of queue.bind, which it counts.
func withoutBinds(out, in net.Conn, binds *atomic.Int32) {
	from := bufio.NewReader(in)
	if _, err := io.CopyN(out, from, int64(len("AMQP\x00\x00\x09\x01"))); err != nil {
		return
	}
	for {
		head, err := from.Peek(7) // type, channel, size
		if err != nil {
			return
		}
		frame := make([]byte, len(head)+int(binary.BigEndian.Uint32(head[3:]))+1)
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		if frame[0] == 1 && bytes.Equal(frame[7:11], []byte{0, 50, 0, 20}) {
			binds.Add(1)
			continue
		}
		if _, err := out.Write(frame); err != nil {
			return
		}
	}
}

// relay passes connections on to an address until cut is called; then it cuts them and takes no more. send passes on what a client sends.
func relay(t *testing.T, to string, send func(out, in net.Conn)) (address string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for in, err := l.Accept(); err == nil; in, err = l.Accept() {
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
			go func() { _, _ = io.Copy(in, out) }()
			go send(out, in)
		}
	}()
	cut = func() {
		_ = l.Close()
		cancel()
		<-done
	}
	t.Cleanup(cut)
	return l.Addr().String(), cut
}

// A mirror that died, or was cut off from the database, has its lease until that ends. One that lasts longer than any is from before the
// database's clock was set back.
func TestALeaseEnds(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.submit(3)
		w.lease("dead", time.Hour)
		m := w.start()
		m.knows(3)
		w.lease("dead", 3*time.Second)
		w.eventually("it acts no more", func() bool {
			warning, err := m.Health()
			return err == nil && warning == "stands by: the stream-mirror dead acts"
		})
		w.submit(1)
		m.knows(4)
		m.stop()
		require.Contains(t, m.log.String(), "acts no more")
		w.copies(4)
	})
}

// Two mirrors act when one does not see that its lease has ended. Then a task may have two copies, but none is without one, and what
// ended has none.
func TestTwoThatActLoseNoCopy(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(60)
	apart := &gate{Database: w.tasks}
	first := w.startOn(apart)
	first.knows(60)
	apart.fails.Store(true)
	w.lease("dead", 0)
	second := w.start()
	second.knows(60)
	ids = append(ids, w.submit(60)...)
	w.cancel(ids[:30]...)
	for _, m := range []*running{first, second} {
		w.eventually("it knows a copy of each", func() bool {
			missing, _ := m.gauge("mirror_missing")
			copies, _ := m.gauge("mirror_copies")
			return missing == 0 && copies == 90
		})
	}
	w.cancel(ids[30:60]...)
	apart.fails.Store(false)
	first.standsBy()
	w.eventually("each has a copy, what ended has none", func() bool {
		met := map[string]bool{}
		require.NoError(t, second.Look(t.Context(), func(id string, _ taskstate.Status) { met[id] = true }))
		return len(met) == 60
	})
	w.cancel(ids[60:]...)
	w.copies(0)
}

// While nobody confirms, tasks without a copy are listed with the reason; a confirm or their end removes them from the list. The default
// times are those of the test: the connection must outlive all tries.
func TestWithoutAConfirmTheTaskIsListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labserver.Private(t, labserver.KindRabbitMQ, labserver.Options{}), taskstoretest.SQLite(t))
	kept := w.submit(1)
	m := w.start()
	m.knows(1)
	require.NoError(t, w.server.Pause())
	ids := w.submit(2)
	w.eventually("both are listed", func() bool { return len(w.failures()) == 2 })
	for _, reason := range w.failures() {
		require.Contains(t, reason, "no confirm within 3s")
	}
	copies, _ := m.gauge("mirror_copies")
	require.EqualValues(t, 1, copies, "what is not confirmed does not count")
	late, _ := m.gauge("rabbit_publish_total", "timeout")
	require.GreaterOrEqual(t, int(late), 6, "three tries each")
	w.cancel(ids[1])
	require.NoError(t, w.server.Continue())
	w.eventually("none is listed", func() bool { return len(w.failures()) == 0 })
	m.knows(2)
	w.cancel(kept[0], ids[0])
	w.copies(0) // also those of tries that were confirmed too late
}

// RabbitMQ is killed and comes back with nothing: every unfinished task is copied again. What ended meanwhile is not.
func TestALostServerHeals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labserver.Private(t, labserver.KindRabbitMQ, labserver.Options{}), taskstoretest.SQLite(t))
	ids := w.submit(10)
	m := w.start()
	m.knows(10)
	require.NoError(t, w.server.Kill(t.Context()))
	require.NoError(t, os.RemoveAll(filepath.Join(w.server.Dir, "mnesia")))
	w.eventually("it is not ready", func() bool { _, err := m.Health(); return err != nil })
	_, shown := m.gauge("mirror_copies")
	require.False(t, shown)
	w.cancel(ids[0])
	more := w.submit(2)
	require.NoError(t, w.server.Restart(t.Context()))
	w.dial()
	m.knows(11)
	w.copies(11)
	m.stop()
	require.Equal(t, once(append(ids[1:], more...)), byTask(t, w.messages()))
}

// RabbitMQ is stopped and comes back with what it had: no task gets a second copy. (Version 3.10, killed right after a quorum queue was
// declared, comes back with a queue that never has a leader.)
func TestARestartedServerKeepsItsCopies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labserver.Private(t, labserver.KindRabbitMQ, labserver.Options{}), taskstoretest.SQLite(t))
	ids := w.submit(10)
	m := w.start()
	m.knows(10)
	require.NoError(t, w.server.Stop(t.Context()))
	w.eventually("it is not ready", func() bool { _, err := m.Health(); return err != nil })
	require.NoError(t, w.server.Restart(t.Context()))
	w.dial()
	m.knows(10)
	m.stop()
	w.copies(10)
	require.Equal(t, once(ids), byTask(t, w.messages()))
}

// gate is a database that can be away.
type gate struct {
	taskstate.Database
	away   atomic.Bool
	leaves atomic.Bool // with the next transaction
	fails  atomic.Bool // each transaction fails, and reads do not
}

func (g *gate) InTx(ctx context.Context, f taskstate.TxFunc) error {
	if g.away.Load() || g.fails.Load() {
		return taskstate.ErrUnavailable
	}
	err := g.Database.InTx(ctx, f)
	if g.leaves.CompareAndSwap(true, false) {
		g.away.Store(true)
	}
	return err
}

func (g *gate) Read(ctx context.Context, f taskstate.ReadFunc) error {
	if g.away.Load() {
		return taskstate.ErrUnavailable
	}
	return g.Database.Read(ctx, f)
}

func (g *gate) Ping(ctx context.Context) error {
	if g.away.Load() {
		return taskstate.ErrUnavailable
	}
	return g.Database.Ping(ctx)
}

// While the database is away nothing is acknowledged; what was taken is rotated and no more is taken.
func TestWithoutADatabaseCopiesWait(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	ids := w.submit(60)
	m := w.start()
	m.knows(60)
	m.stop()
	w.cancel(ids[:59]...)
	db := &gate{Database: w.tasks}
	db.away.Store(true)
	m = w.startOn(db)
	w.eventually("without the lease it is not ready", func() bool {
		_, err := m.Health()
		return err != nil && strings.Contains(err.Error(), "lease of the mirror that acts")
	})
	db.leaves.Store(true) // it comes back for the lease alone
	db.away.Store(false)
	w.eventually("a batch went round", func() bool { n, _ := m.gauge("rabbit_publish_total", "confirmed"); return n >= 50 })
	w.copies(60)
	db.away.Store(false)
	m.knows(1)
	w.copies(1)
}

// The publisher stops below the maximum: a full queue would refuse rotation too. When there is room again it goes on.
func TestTheMirrorStopsBelowTheMaximum(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	w.cfg.QueueMaxLength = 1010
	ids := w.submit(30)
	m := w.start()
	w.eventually("it says that it is full", func() bool {
		warning, _ := m.Health()
		return strings.Contains(warning, "RABBITMQ_QUEUE_MAX_LENGTH 1010")
	})
	w.copies(10)
	w.cancel(ids[:15]...)
	w.eventually("the others have taken their place", func() bool {
		missing, _ := m.gauge("mirror_missing")
		copies, _ := m.gauge("mirror_copies")
		return copies == 10 && missing == 5
	})
	w.cancel(ids[15:25]...)
	m.knows(5)
}

// A queue with other arguments is used as it is, and what mends it is said.
func TestAnotherQueueIsUsed(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	_, err := w.ch.QueueDeclare(w.cfg.Queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	require.NoError(t, err)
	w.submit(1)
	m := w.start()
	m.knows(1)
	warning, err := m.Health()
	require.NoError(t, err)
	require.Contains(t, warning, "rabbitmqctl set_policy")
}

// Who may not declare needs a topology that is there. Without a right to bind, copies that come back are not lost: those that are
// there stay until they are published anew.
func TestWithoutTheRightToDeclare(t *testing.T) {
	t.Parallel()
	w := newWorld(t, labserver.Private(t, labserver.KindRabbitMQ, labserver.Options{}), taskstoretest.SQLite(t))
	w.cfg.PublishTimeout = waitLimit
	ids := w.submit(60)
	first := w.start()
	first.knows(60)
	first.stop()
	for _, args := range [][]string{{"add_user", "reader", "secret"}, {"set_permissions", "reader", "^$", ".*", ".*"}} {
		require.NoError(t, w.server.RabbitControl(t.Context(), args...))
	}
	w.cfg.URL = strings.Replace(w.cfg.URL, "guest:guest@", "reader:secret@", 1)
	m := w.start()
	m.knows(60)
	warning, err := m.Health()
	require.NoError(t, err)
	require.Contains(t, warning, "may not declare")
	require.NoError(t, w.ch.ExchangeDelete(w.cfg.Exchange, false, false))
	require.NoError(t, w.ch.ExchangeDeclare(w.cfg.Exchange, "topic", true, false, false, false, nil)) // it has no binding now
	w.cancel(ids[0])                                                                                  // asks for a round
	w.eventually("copies come back", func() bool { n, _ := m.gauge("rabbit_publish_total", "returned"); return n > 0 })
	m.stop()
	w.eventually("no copy of what is unfinished is lost", func() bool { return w.ready(w.cfg.Queue) >= 59 })
	require.Subset(t, keys(byTask(t, w.messages())), ids[1:])

	w.cfg.Exchange += ".none"
	m = w.start()
	w.eventually("it is not ready", func() bool {
		_, err := m.Health()
		return err != nil && strings.Contains(err.Error(), "grant the user configure")
	})
}

func keys(counts map[string]int) (out []string) {
	for id := range counts {
		out = append(out, id)
	}
	return out
}

// A wrong address, password or vhost makes the mirror not ready; its words have no password in them.
func TestAWrongAddressIsToldWithoutItsPassword(t *testing.T) {
	t.Parallel()
	w := onSQLite(t)
	for what, change := range map[string]func(*mirror.Config){
		"password": func(c *mirror.Config) { c.URL = strings.Replace(c.URL, "guest:guest@", "guest:s3cr3t@", 1) },
		"vhost": func(c *mirror.Config) {
			c.URL, c.VHost = strings.Replace(c.URL, "guest:guest@", "guest:guest@", 1), "nowhere"
		},
		"port": func(c *mirror.Config) { c.URL = "amqp://guest:s3cr3t@127.0.0.1:1/" },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			one := *w
			one.t = t
			change(&one.cfg)
			m := one.start()
			one.eventually("two attempts", func() bool { n, _ := m.gauge("rabbit_publish_total", "failed"); return n >= 2 })
			_, err := m.Health()
			require.Error(t, err)
			require.NotContains(t, err.Error(), "s3cr3t")
		})
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	require.NoError(t, mirror.NewDefaultConfig("amqp://127.0.0.1").Validate())
	c := mirror.NewDefaultConfig("http://guest:s3cr3t@host")
	c.Overflow, c.QueueMaxLength, c.Prefetch, c.Queue = "drop-head", 1000, 0, ""
	err := c.Validate()
	for _, name := range []string{"RABBITMQ_URL", "RABBITMQ_QUEUE_OVERFLOW", "RABBITMQ_QUEUE_MAX_LENGTH", "RABBITMQ_PREFETCH", "RABBITMQ_QUEUE:"} {
		require.ErrorContains(t, err, name)
	}
	require.NotContains(t, err.Error(), "s3cr3t")
}
