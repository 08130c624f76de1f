package jointq

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq/stream"
	pb "github.com/millweir/millweir/proto"
)

// Each type lies in its stream, ids are in the envelopes' order, and each is acknowledged by its id.
func TestTypesLieInTheirStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.member(t, nil)
	docs, flows := tasks(document, 3), tasks(workflow, 2)
	ids, err := q.Publish(t.Context(), []*pb.TaskEnvelope{docs[0], flows[0], docs[1], flows[1], docs[2]})
	require.NoError(t, err)
	for i, id := range ids {
		require.Equal(t, i%2 == 1, strings.HasPrefix(id, mark), id)
		require.LessOrEqual(t, len(id), 31)
	}
	length, err := q.StreamLength(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, length)
	for taskType, stream := range map[string]string{document: "ingest:tasks", workflow: "queue:tasks"} {
		_, name := q.Destination(taskType)
		require.Equal(t, stream, name)
	}
	seen := map[string]string{}
	for len(seen) < 5 {
		some, err := q.Read(t.Context(), 2, time.Second)
		require.NoError(t, err)
		for _, d := range some {
			seen[d.ID] = d.TaskID
		}
	}
	require.Equal(t, map[string]string{
		ids[0]: "document-0000", ids[1]: "workflow.execute-0000", ids[2]: "document-0001", ids[3]: "workflow.execute-0001", ids[4]: "document-0002",
	}, seen)
	page, err := q.Pending(t.Context(), 0, ids[2], 2)
	require.NoError(t, err)
	require.Equal(t, []string{ids[4], ids[1]}, []string{page[0].ID, page[1].ID}, "the first queue's end, then the second's beginning")
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, ingestq.Stats{Length: 5, Pending: 5}, stats)
	inspector := NewInspector(r.inspector(t, first), r.inspector(t, second))
	state, err := inspector.Look(t.Context())
	require.NoError(t, err)
	require.Len(t, state.Pending, 5)
	require.Len(t, state.Groups, 2)
	require.NoError(t, q.Ack(t.Context(), ids...))
	removed, err := q.Trim(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, removed)
	state, err = inspector.Look(t.Context())
	require.NoError(t, err)
	require.Empty(t, state.Pending)
	ids, err = q.Publish(t.Context(), tasks(workflow, 1))
	require.NoError(t, err)
	_, own := splitID(ids[0])
	r.do(t, "XDEL", "queue:tasks", own)
	state, err = inspector.Look(t.Context())
	require.NoError(t, err)
	require.Empty(t, state.Groups[first].Deleted, "each group has its own stream's border")
	require.Equal(t, own, state.Groups[second].Deleted)
}

// A backlog of one type does not hold up the other, however few are asked for at a time.
func TestNeitherTypeWaitsBehindTheOther(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 10, 64} {
		for _, backlog := range []string{document, workflow} {
			r := newRig(t, labserver.RedisURL(t))
			q := r.member(t, nil)
			q.hold = time.Hour
			other := map[string]string{document: workflow, workflow: document}[backlog]
			_, err := q.Publish(t.Context(), append(tasks(backlog, 500), tasks(other, 1)...))
			require.NoError(t, err)
			found := false
			for range 2 {
				some, err := q.Read(t.Context(), n, time.Second)
				require.NoError(t, err)
				require.LessOrEqual(t, len(some), n)
				q.reads.Wait() // what the other queue has is held now
				found = found || slices.ContainsFunc(some, func(d ingestq.Delivery) bool { return strings.HasPrefix(d.TaskID, other) })
			}
			require.True(t, found, "%d at a time, backlog of %s", n, backlog)
		}
	}
}

// Of two backlogs as many are taken of one as of the other, also when every second read is small.
func TestTwoBacklogsAreTakenEvenly(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.member(t, nil)
	const most, each = 8, 300
	_, err := q.Publish(t.Context(), append(tasks(document, each), tasks(workflow, each)...))
	require.NoError(t, err)
	ahead := 0
	for round := range 100 {
		some, err := q.Read(t.Context(), 1+(most-1)*(round%2), time.Second)
		require.NoError(t, err)
		for _, d := range some {
			if strings.HasPrefix(d.TaskID, document) {
				ahead++
			} else {
				ahead--
			}
		}
		q.reads.Wait() // what the other queue has is held now
		require.LessOrEqual(t, max(ahead, -ahead), 2*most, "after %d reads", round+1)
	}
}

// What a read brings is for the Read that waits for it, however late that comes to run: it is not handed back meanwhile.
func TestWhatAReadWaitsForIsNotHandedBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.member(t, nil)
	q.hold = time.Nanosecond // as if the process had no turn for longer than that
	for range 100 {
		ids, err := q.Publish(t.Context(), tasks(workflow, 1))
		require.NoError(t, err)
		some, err := q.Read(t.Context(), 1, time.Second)
		require.NoError(t, err)
		require.Len(t, some, 1)
		require.Equal(t, ids[0], some[0].ID, "its copy")
	}
}

// What a member does not read is there for the others; it acknowledges it all the same.
func TestAMemberMayLeaveAQueueToOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	docs, flows := r.member(t, func(o *Options) { o.SkipSecond = true }), r.member(t, func(o *Options) { o.SkipFirst = true })
	ids, err := docs.Publish(t.Context(), append(tasks(document, 1), tasks(workflow, 1)...))
	require.NoError(t, err)
	for i, q := range []*Queue{docs, flows} {
		some, err := q.Read(t.Context(), 10, 300*time.Millisecond)
		require.NoError(t, err)
		require.Len(t, some, 1)
		require.Equal(t, ids[i], some[0].ID)
	}
	require.NoError(t, docs.Ack(t.Context(), ids[1]))
	page, err := flows.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 1)
}

// A stream that cannot be read, here since its key holds something else, does not hold up the other one.
func TestAQueueThatFailsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.member(t, nil)
	r.do(t, "SET", "queue:tasks", "not a stream")
	_, err := q.Publish(t.Context(), tasks(document, 3))
	require.NoError(t, err)
	for got := 0; got < 3; {
		some, err := q.Read(t.Context(), 1, time.Second)
		require.NoError(t, err)
		got += len(some)
	}
	some, err := q.Read(t.Context(), 1, 50*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, some)
	require.ErrorIs(t, func() error { _, err := q.Stats(t.Context()); return err }(), ingestq.ErrUnavailable)
	r.do(t, "SET", "ingest:tasks", "neither")
	_, err = q.Read(t.Context(), 1, time.Minute)
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	r.do(t, "FLUSHDB")
	_, err = q.Publish(t.Context(), tasks(workflow, 1))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		some, err := q.Read(t.Context(), 1, time.Second)
		return err == nil && len(some) == 1
	}, waitLimit, time.Millisecond)
}

// gated is a member whose blocking reads return when the test lets them.
type gated struct {
	Member
	asked chan struct{} // one for each read that waits
	open  chan struct{}
	on    atomic.Bool
}

func (g *gated) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	if block > 0 && g.on.Load() {
		g.asked <- struct{}{}
		<-g.open
	}
	return g.Member.Read(ctx, n, block)
}

// late is a joint member whose second queue is read when the test lets it, after a Read that brought a document.
func late(t *testing.T, r *rig) (q *Queue, g *gated) {
	t.Helper()
	name := ingestq.MemberName()
	g = &gated{Member: r.single(t, second, name), asked: make(chan struct{}, 100), open: make(chan struct{}, 100)}
	g.on.Store(true)
	q = New(r.single(t, first, name), g, Options{Second: func(s string) bool { return s == workflow }, Log: r.log()})
	_, err := q.Publish(t.Context(), tasks(document, 1))
	require.NoError(t, err)
	some, err := q.Read(t.Context(), 10, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "document-0000", some[0].TaskID)
	<-g.asked
	_, err = q.Publish(t.Context(), tasks(workflow, 1))
	require.NoError(t, err)
	return q, g
}

// A read that goes on after Read returned swallows nothing: the next Read has it.
func TestTheNextReadHasWhatCameLate(t *testing.T) {
	t.Parallel()
	q, g := late(t, newRig(t, labserver.RedisURL(t)))
	q.hold = time.Hour
	got := make(chan []ingestq.Delivery, 1)
	go func() {
		some, _ := q.Read(t.Context(), 10, time.Minute)
		got <- some
	}()
	g.open <- struct{}{}
	some := <-got
	require.Len(t, some, 1)
	require.Equal(t, "workflow.execute-0000", some[0].TaskID)
	require.True(t, strings.HasPrefix(some[0].ID, mark))
	close(g.open)
	g.on.Store(false)
	q.reads.Wait()
}

// If none comes, as in a process whose slots are all in use, others have it.
func TestWhatNobodyTakesGoesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q, g := late(t, r)
	close(g.open)
	q.reads.Wait()
	other := r.member(t, nil)
	var some []ingestq.Delivery
	require.Eventually(t, func() bool {
		var err error
		some, err = other.Read(t.Context(), 10, time.Second)
		return err == nil && len(some) > 0
	}, waitLimit, time.Millisecond)
	require.Equal(t, "workflow.execute-0000", some[0].TaskID)
	g.on.Store(false)
	back, err := q.Read(t.Context(), 10, 0)
	require.NoError(t, err)
	require.Empty(t, back, "it is not here any more")
	page, err := other.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 2, "the document, and the workflow once")
}

// At a stop it goes back before the member leaves, without its time.
func TestAStopReturnsWhatCameLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q, g := late(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { require.NoError(t, q.Run(ctx)) })
	cancel()
	close(g.open)
	run.Wait()
	other := r.member(t, nil)
	some, err := other.Read(t.Context(), 10, time.Second)
	require.NoError(t, err)
	require.Len(t, some, 1)
	require.Equal(t, "workflow.execute-0000", some[0].TaskID)
}

// What cannot go back, since the server is away, is not lost: it is pending with its member.
func TestWhatCannotGoBackIsPending(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q, g := late(t, r)
	q.members[second] = noRequeue{g}
	close(g.open)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, q.Run(ctx))
	page, err := r.member(t, nil).Pending(t.Context(), 0, mark, 10)
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.False(t, page[0].Alive, "so reconciling takes it")
}

// noRequeue is a member whose server does not answer a Requeue.
type noRequeue struct{ Member }

func (noRequeue) Requeue(context.Context, []ingestq.Copy) (int, error) {
	return 0, errors.Join(ingestq.ErrUnavailable)
}

// Of lost deliveries the stream counts that was read least far: what was promised before has been read in both.
func TestTheSmallerWatermarkCounts(t *testing.T) {
	t.Parallel()
	for _, older := range []string{document, workflow} {
		younger := map[string]string{document: workflow, workflow: document}[older]
		r := newRig(t, labserver.RedisURL(t))
		q := r.member(t, nil)
		at := func(taskType string) time.Time {
			ids, err := q.Publish(t.Context(), tasks(taskType, 1))
			require.NoError(t, err)
			_, own := splitID(ids[0])
			id, _ := stream.ParseID(own)
			return id.Time()
		}
		first, clock := at(older), r.bench(t, first).Clock
		for !clock().Truncate(time.Millisecond).After(first) { // ids are in ms
			runtime.Gosched()
		}
		require.True(t, at(younger).After(first))
		w, err := q.Watermark(t.Context())
		require.NoError(t, err)
		require.True(t, w.At.Equal(first), "%s, not %s", w.At, first)
	}
}
