// Package ingestqtest is the conformance suite of the queue port: every implementation of ingestq.PendingQueue passes it.
package ingestqtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

const (
	blockTime = 5 * time.Second        // of a read that has something to find
	shortTime = 100 * time.Millisecond // of a read that has not
	waitLimit = 2 * time.Minute        // of a wait for something that must come
)

// Features says what an implementation can do; the suite asserts the other case too.
type Features struct {
	// Lag: Stats tells the entries not yet given to the group; otherwise -1.
	Lag bool
	// DeadLetters: there is a dead letter queue to look at (Bench.DeadLetters).
	DeadLetters bool
	// ForgetsGone: adopting an entry whose data is gone also ends its pending state (Redis 7).
	ForgetsGone bool
}

// Bench is one empty queue of a test. All functions are called from the test's goroutine unless said otherwise.
type Bench struct {
	// Member makes another member of the group, whose Run is not running.
	Member func() ingestq.PendingQueue
	// DeadLetters reads the dead letter queue, oldest first.
	DeadLetters func() []map[string]string
	// AddRaw adds a delivery with any fields past the codec and returns its id.
	AddRaw func(fields map[string]string) string
	// DeleteData deletes the data of an entry and leaves its pending state.
	DeleteData func(id string)
	// Wipe makes the queue lose all it has, its group too.
	Wipe func()
	// Kill makes the member's heartbeat end as if its process had died.
	Kill func(member ingestq.PendingQueue)
	// Rest makes a member stop reading for the others, where streams have owners; nil: any member reads any stream.
	Rest func(member ingestq.PendingQueue)
	// Locator says where deliveries are; nil: nothing can.
	Locator func() ingestq.Locator
	// Clock is the queue's own time.
	Clock func() time.Time
	// Probe asks the server for a sign of life over a connection that no member uses. It is called from another goroutine, all
	// the time: by what it takes the suite judges whether a call may fail with ErrUnavailable.
	Probe func(ctx context.Context) error
}

// Run runs the suite; open makes a bench of its own for each test.
func Run(t *testing.T, features Features, open func(t *testing.T) Bench) {
	for name, test := range map[string]func(*testing.T, Features, Bench){
		"EnvelopesArriveOnceAndInOrder":         testDelivery,
		"ReadIsBoundedInNumberAndTime":          testReadBounds,
		"ReadWakesUpForANewDelivery":            testReadWakes,
		"ReadEndsWithItsContext":                testReadContext,
		"ACancelledReadSwallowsNothing":         testReadCancelledInTime,
		"AckEndsADelivery":                      testAck,
		"UndecodableDeliveriesGoToQuarantine":   testQuarantine,
		"OneBadEnvelopeHoldsNobodyUp":           testBadEnvelope,
		"AdoptTakesOver":                        testAdopt,
		"AdoptOfGoneDeliveriesFindsNone":        testAdoptGone,
		"PendingTellsWhoHasWhat":                testPending,
		"PendingPages":                          testPendingPages,
		"LocateTellsWhoHasADelivery":            testLocate,
		"PendingSeesOldBehindYoung":             testPendingOldBehindYoung,
		"RequeueCopiesOnlyWhatItAcknowledged":   testRequeue,
		"TwoWhoSettleAtOnceMakeOneCopy":         testRequeueRace,
		"LetGoSparesTheYoung":                   testUnpin,
		"DeadLettersHaveTheContractsFields":     testDeadLetters,
		"TrimKeepsWhatTheGroupNeeds":            testTrim,
		"HorizonIsTheFirstUnreadEntry":          testWatermark,
		"HorizonOfANewQueueIsItsOldestEntry":    testWatermarkOfNewGroup,
		"StatsCount":                            testStats,
		"AWipedQueueHealsByItself":              testWipe,
		"AMemberThatStopsLeavesIfNothingIsHeld": testLeave,
		"AMemberThatStoppedComesBack":           testComesBack,
		"ForeignIDsAreUnknownIDs":               testForeignIDs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, features, open(t).patiently(t))
		})
	}
}

// envelope is number i of a test.
func envelope(i int) *pb.TaskEnvelope {
	return &pb.TaskEnvelope{
		SchemaVersion: pb.SchemaVersion, TaskId: fmt.Sprintf("task-%04d", i), Type: "document", UserId: "local",
		DocumentId: fmt.Sprintf("doc-%04d", i), FilePath: "stored/报告 1.pdf",
		Payload: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(float64(i))}}),
		Context: &pb.TaskContext{RequestId: "req", Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		Retry:   &pb.TaskRetry{Count: 1, Max: 10},
	}
}

func envelopes(n int) []*pb.TaskEnvelope {
	all := make([]*pb.TaskEnvelope, n)
	for i := range all {
		all[i] = envelope(i)
	}
	return all
}

// publish adds n envelopes and returns their ids.
func publish(t *testing.T, p ingestq.Publisher, n int) []string {
	t.Helper()
	ids, err := p.Publish(t.Context(), envelopes(n))
	require.NoError(t, err)
	require.Len(t, ids, n)
	return ids
}

// rest lets another member read; what the first one was given is acknowledged before, since a new owner is given it again.
func (b Bench) rest(t *testing.T, c ingestq.PendingQueue, held []ingestq.Delivery) {
	t.Helper()
	if b.Rest == nil {
		return
	}
	require.NoError(t, c.Ack(t.Context(), deliveryIDs(held)...))
	b.Rest(c)
}

// readAll reads until it has n deliveries.
func readAll(t *testing.T, c ingestq.PendingQueue, n int) []ingestq.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var all []ingestq.Delivery
	for len(all) < n {
		require.NoError(t, ctx.Err(), "%d of %d read", len(all), n)
		some, err := c.Read(ctx, n-len(all), blockTime)
		if !errors.Is(err, ingestq.ErrUnavailable) { // a server that was held up answers the next read
			require.NoError(t, err, "%d of %d read", len(all), n)
		}
		all = append(all, some...)
	}
	return all
}

func requireNothingToRead(t *testing.T, c ingestq.PendingQueue) {
	t.Helper()
	some, err := c.Read(t.Context(), 10, shortTime)
	for errors.Is(err, ingestq.ErrUnavailable) && t.Context().Err() == nil {
		some, err = c.Read(t.Context(), 10, shortTime)
	}
	require.NoError(t, err)
	require.Empty(t, some)
}

// pendingIDs are the ids of all pending deliveries.
func pendingIDs(t *testing.T, c ingestq.PendingQueue) []string {
	t.Helper()
	page, err := c.Pending(t.Context(), 0, "", 1000)
	require.NoError(t, err)
	ids := make([]string, 0, len(page))
	for _, p := range page {
		ids = append(ids, p.ID)
	}
	return ids
}

func deliveryIDs(deliveries []ingestq.Delivery) []string {
	ids := make([]string, 0, len(deliveries))
	for _, d := range deliveries {
		ids = append(ids, d.ID)
	}
	return ids
}

func requireEnvelope(t *testing.T, want, got *pb.TaskEnvelope) {
	t.Helper()
	require.True(t, proto.Equal(want, got), "want %v\n got %v", want, got)
}

// idleFor waits until each pending delivery has been idle for d.
func idleFor(t *testing.T, c ingestq.PendingQueue, d time.Duration, ids ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		page, err := c.Pending(t.Context(), d, "", 1000)
		if err != nil {
			return false
		}
		idle := map[string]bool{}
		for _, p := range page {
			idle[p.ID] = true
		}
		for _, id := range ids {
			if !idle[id] {
				return false
			}
		}
		return true
	}, waitLimit, 10*time.Millisecond)
}

// within repeats what was held up for as long as d: what it judges by that time is then not what was meant.
func within(d time.Duration, try func()) {
	for took := d; took >= d; {
		began := time.Now()
		try()
		took = time.Since(began)
	}
}
