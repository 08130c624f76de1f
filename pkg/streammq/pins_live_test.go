package streammq

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/share"
)

func TestPinsAreValidatedAndCarried(t *testing.T) {
	t.Parallel()
	good := NewDefaultSubscriberConfig("t", "g", (&log{}).handler(succeed))
	for _, pins := range [][]int{nil, {0}, {3, 1, 1023}} {
		good.Pin = pins
		require.NoError(t, good.Validate())
		got, err := share.DecodePins(share.EncodePins(pins))
		require.NoError(t, err)
		require.Equal(t, pins, got)
	}
	for text, change := range map[string]func(*SubscriberConfig){
		"Pin -1": func(c *SubscriberConfig) { c.Pin = []int{-1} }, "Pin 1024": func(c *SubscriberConfig) { c.Pin = []int{MaxPartitions} },
		"Pin 2: twice": func(c *SubscriberConfig) { c.Pin = []int{2, 2} }, "Cap 1": func(c *SubscriberConfig) { c.Pin, c.Cap = []int{1, 2}, 1 },
		"no partitions": func(c *SubscriberConfig) { c.Pin, c.Topic, c.StreamKey = []int{1}, "", "s" },
	} {
		c := good
		change(&c)
		require.ErrorContains(t, c.Validate(), text)
	}
	_, err := share.DecodeMember("m", "0", "5", "1,,2")
	require.ErrorIs(t, err, ErrMalformed)
}

func TestPinsOnAServer(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 6)
		has := func(m *running, n int, pins ...int) bool {
			got := m.Partitions()
			return len(got) == n && !slices.ContainsFunc(pins, func(p int) bool { return !slices.Contains(got, p) })
		}
		plain := r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return has(plain, 6) }, "all of them")
		pinned := r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.Pin = []int{1, 4} })
		eventually(r.t, func() bool { return has(plain, 3) && has(pinned, 3, 1, 4) }, "its pins, and its share")
		owners, err := q.Admin(r.topic).Owners(r.t.Context(), "g")
		require.NoError(r.t, err)
		require.True(r.t, slices.ContainsFunc(owners.Members, func(m MemberInfo) bool {
			return m.Name == pinned.Name() && slices.Equal(m.Pins, []int{1, 4}) && m.Target == 3
		}), "%+v", owners.Members)
		require.Zero(r.t, r.seen.count(EventPinConflict))
		rival := r.subscribe(q, seen.handler(succeed), func(c *SubscriberConfig) { c.Pin = []int{4} })
		eventually(r.t, func() bool {
			return has(plain, 2) && has(pinned, 2, 1, 4) && has(rival, 2) && r.seen.count(EventPinConflict) > 0
		}, "who has it keeps it")
		pinned.end()
		eventually(r.t, func() bool { return has(rival, 3, 4) && has(plain, 3) }, "then it is the other's")
	})
}
