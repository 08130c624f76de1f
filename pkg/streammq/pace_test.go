package streammq

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPaceOfLooks(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Second
	even := func(change func(*view)) view {
		v := view{leases: []string{"a", "b"}, members: []memberView{{name: "a", left: time.Minute}, {name: "b", left: time.Minute}}, expiry: -1}
		if change != nil {
			change(&v)
		}
		return v
	}
	for name, tc := range map[string]struct {
		v         view
		unsettled int
		want      time.Duration
	}{
		"even":                   {even(nil), 3, interval},
		"a heartbeat ends":       {even(func(v *view) { v.members[1].left = time.Second }), 0, time.Second + time.Millisecond},
		"my own heartbeat":       {even(func(v *view) { v.members[0].left = time.Second }), 0, interval},
		"a dead member's lease":  {even(func(v *view) { v.leases, v.expiry = []string{"a", "dead"}, 2*time.Second }), 9, 2*time.Second + time.Millisecond},
		"it has just ended":      {even(func(v *view) { v.expiry = 0 }), 0, lookPause / 2},
		"free":                   {even(func(v *view) { v.leases[1] = "" }), 0, lookPause},
		"free for long":          {even(func(v *view) { v.leases[1] = "" }), 3, 8 * lookPause},
		"free for ever":          {even(func(v *view) { v.leases[1] = "" }), 1000, interval},
		"too many":               {even(func(v *view) { v.leases[1] = "a" }), 0, lookPause},
		"free beyond the caps":   {view{leases: []string{"a", ""}, members: []memberView{{name: "a", cap: 1, left: time.Minute}}, expiry: -1}, 0, interval},
		"the last lease of dead": {view{leases: []string{"dead"}, members: []memberView{{name: "a", left: time.Minute}}, expiry: time.Second}, 9, time.Second + time.Millisecond},
		"one leaves":             {even(func(v *view) { v.leases, v.expiry = []string{"a", "away"}, 2*time.Second }), 1, 2 * lookPause},
	} {
		p := pace{interval: interval, unsettled: tc.unsettled, seen: tc.v}
		require.Equal(t, tc.want, p.next(tc.v, "a", 0), name)
		most := (&pace{interval: interval, unsettled: tc.unsettled, seen: tc.v}).next(tc.v, "a", 1)
		require.Equal(t, min(interval, tc.want+time.Duration(len(tc.v.members))*lookSpread), most, "%s: spread by the members", name)
	}
	p := pace{interval: interval}
	require.Equal(t, []time.Duration{lookPause, 2 * lookPause}, []time.Duration{p.soon(), p.soon()})
	require.Equal(t, lookPause, p.next(even(func(v *view) { v.leases[1] = "" }), "a", 0), "all has changed")
	p.next(even(nil), "a", 0)
	require.Zero(t, p.unsettled)
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
