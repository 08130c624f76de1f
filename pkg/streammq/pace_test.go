package streammq

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/share"
)

func TestPaceOfLooks(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	even := func(change func(*share.View)) share.View {
		v := share.View{Leases: []string{"a", "b"}, Members: []share.MemberView{{Name: "a", Left: time.Minute}, {Name: "b", Left: time.Minute}}, Expiry: -1}
		if change != nil {
			change(&v)
		}
		return v
	}
	for name, tc := range map[string]struct {
		v         share.View
		unsettled int
		want      time.Duration
	}{
		"even":                   {even(nil), 3, interval},
		"a heartbeat ends":       {even(func(v *share.View) { v.Members[1].Left = time.Second }), 0, time.Second + time.Millisecond},
		"my own heartbeat":       {even(func(v *share.View) { v.Members[0].Left = time.Second }), 0, interval},
		"a dead member's lease":  {even(func(v *share.View) { v.Leases, v.Expiry = []string{"a", "dead"}, 2*time.Second }), 9, 2*time.Second + time.Millisecond},
		"it has just ended":      {even(func(v *share.View) { v.Expiry = 0 }), 0, share.LookPause / 2},
		"free":                   {even(func(v *share.View) { v.Leases[1] = "" }), 0, share.LookPause},
		"free for long":          {even(func(v *share.View) { v.Leases[1] = "" }), 3, 8 * share.LookPause},
		"free for ever":          {even(func(v *share.View) { v.Leases[1] = "" }), 1000, interval},
		"too many":               {even(func(v *share.View) { v.Leases[1] = "a" }), 0, share.LookPause},
		"free beyond the caps":   {share.View{Leases: []string{"a", ""}, Members: []share.MemberView{{Name: "a", Cap: 1, Left: time.Minute}}, Expiry: -1}, 0, interval},
		"the last lease of dead": {share.View{Leases: []string{"dead"}, Members: []share.MemberView{{Name: "a", Left: time.Minute}}, Expiry: time.Second}, 9, time.Second + time.Millisecond},
		"one leaves":             {even(func(v *share.View) { v.Leases, v.Expiry = []string{"a", "away"}, 2*time.Second }), 1, 2 * share.LookPause},
	} {
		p := share.Pace{Interval: interval, Unsettled: tc.unsettled, Seen: tc.v}
		require.Equal(t, tc.want, p.Next(tc.v, "a", 0), name)
		most := (&share.Pace{Interval: interval, Unsettled: tc.unsettled, Seen: tc.v}).Next(tc.v, "a", 1)
		require.Equal(t, min(interval, tc.want+time.Duration(len(tc.v.Members))*share.LookSpread), most, "%s: spread by the members", name)
	}
	p := share.Pace{Interval: interval}
	require.Equal(t, []time.Duration{share.LookPause, 2 * share.LookPause}, []time.Duration{p.Soon(), p.Soon()})
	require.Equal(t, share.LookPause, p.Next(even(func(v *share.View) { v.Leases[1] = "" }), "a", 0), "all has changed")
	p.Next(even(nil), "a", 0)
	require.Zero(t, p.Unsettled)
}

// The interval between two looks is an hour here: what makes the partitions even again is that members look when
// somebody comes, leaves, or when what the dead have expires.
func TestMembersLookWhenSomethingIsDue(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		const partitions = 12
		q := r.mq(nil)
		r.topicOf(q, partitions)
		handler := (&log{}).handler(succeed)
		rare := func(c *SubscriberConfig) { c.Rebalance = time.Hour }
		even := func(members ...*running) func() bool {
			return func() bool {
				for _, m := range members {
					if len(m.Partitions()) != partitions/len(members) {
						return false
					}
				}
				return true
			}
		}
		a := r.subscribe(q, handler, rare)
		eventually(r.t, even(a), "the first has all")
		b := r.subscribe(q, handler, rare)
		eventually(r.t, even(a, b), "the second came")
		ctx, die := context.WithCancel(r.t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			r.killed(ctx, q, handler, rare)
		}()
		eventually(r.t, func() bool { return len(a.Partitions())+len(b.Partitions()) == 2*partitions/3 }, "the third came")
		die()
		<-gone
		eventually(r.t, even(a, b), "the third died")
		b.end()
		eventually(r.t, even(a), "the second left")
	})
}
