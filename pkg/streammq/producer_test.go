package streammq

import (
	"maps"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// An entry says nothing of a key that is none, since an empty key is a key to the Java original; a payload is always there.
func TestAMessageWithNothingInIt(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		for i, m := range []Message{{}, {Payload: []byte{}}, {Headers: map[string]string{}}} {
			receipt, err := q.NewProducer(nil).Publish(r.t.Context(), r.topic, m)
			require.NoError(r.t, err)
			fields := r.entries(r.source(0).Stream())[i].FieldValues
			require.Contains(r.t, fields, "payload")
			require.Empty(r.t, fields["payload"])
			for _, none := range []string{"key", "originalMessageId", "payloadRef"} {
				require.NotContains(r.t, fields, none)
			}
			headers, err := wire.DecodeHeaders(fields["headers"])
			require.NoError(r.t, err)
			require.Equal(r.t, map[string]string{HeaderUUID: receipt.UUID}, headers)
		}
		r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 3 && r.pending(0, "g") == 0 }, "each is run")
		for _, d := range seen.all() {
			require.Empty(r.t, d.Payload)
			require.Empty(r.t, d.Key)
			require.Equal(r.t, d.ID, d.OriginalID)
		}
	})
}

// What the caller gave stays the caller's; a uuid of its own is kept.
func TestPublishLeavesTheMessageAsItIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 1)
	m := Message{Key: "k", Payload: []byte("p"), Headers: map[string]string{"a": "b"}}
	before := maps.Clone(m.Headers)
	first, err := q.NewProducer(nil).Publish(t.Context(), r.topic, m)
	require.NoError(t, err)
	require.Equal(t, before, m.Headers)
	second, err := q.NewProducer(nil).Publish(t.Context(), r.topic, m)
	require.NoError(t, err)
	require.NotEqual(t, first.UUID, second.UUID, "two messages")
	require.NotEqual(t, first.ID, second.ID)
	m.Headers[HeaderUUID] = "mine"
	third, err := q.NewProducer(nil).Publish(t.Context(), r.topic, m)
	require.NoError(t, err)
	require.Equal(t, "mine", third.UUID)
}

// One producer is used by many at once: each message is there once, under the id that its receipt names.
func TestManyPublishAtOnce(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		const callers, each = 10, 5
		q := r.mq(nil)
		r.topicOf(q, 3)
		p := q.NewProducer(nil)
		receipts := make([][]Receipt, callers)
		errs := make([]error, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for j := 0; j < each && errs[i] == nil; j++ {
					n := strconv.Itoa(i*each + j)
					var receipt Receipt
					receipt, errs[i] = p.Publish(r.t.Context(), r.topic, Message{Key: "key-" + n, Payload: []byte(n)})
					receipts[i] = append(receipts[i], receipt)
				}
			})
		}
		wg.Wait()
		stored := map[Receipt]string{}
		for partition := range 3 {
			for _, e := range r.entries(r.source(partition).Stream()) {
				headers, err := wire.DecodeHeaders(e.FieldValues["headers"])
				require.NoError(r.t, err)
				stored[Receipt{UUID: headers[HeaderUUID], Partition: partition, ID: e.ID}] = e.FieldValues["payload"]
			}
		}
		require.Len(r.t, stored, callers*each)
		for i := range callers {
			require.NoError(r.t, errs[i])
			for j, receipt := range receipts[i] {
				require.Equal(r.t, strconv.Itoa(i*each+j), stored[receipt])
			}
		}
	})
}
