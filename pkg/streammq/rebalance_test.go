package streammq

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// lookClient calls what it was given, once, before or after a look at the lease of partition 0.
type lookClient struct {
	rueidis.Client
	lease         string
	before, after atomic.Pointer[func()]
}

func (c *lookClient) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	looks := len(multi) > 0 && multi[0].Commands()[0] == "GET" && multi[0].Commands()[1] == c.lease
	call := func(do *atomic.Pointer[func()]) {
		if looks {
			if f := do.Swap(nil); f != nil {
				(*f)()
			}
		}
	}
	call(&c.before)
	defer call(&c.after)
	return c.Client.DoMulti(ctx, multi...)
}

// A look that is under way at a stop takes nothing: what the member has just given back is for the others.
func TestALookAtAStopTakesNothing(t *testing.T) {
	t.Parallel()
	for name, arm := range map[string]func(c *lookClient, f func()){
		"seen free": func(c *lookClient, f func()) { c.before.Store(&f) },
		"seen own":  func(c *lookClient, f func()) { c.after.Store(&f) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, LayoutSingle)
			q, src := r.mq(nil), r.source(0)
			r.topicOf(q, 1)
			client := &lookClient{Client: r.client, lease: src.Lease("g")}
			q.core.Client = client
			m := r.subscribe(q, (&log{}).handler(succeed), nil)
			eventually(t, func() bool { return len(m.Partitions()) == 1 }, "it owns it")
			epoch := r.text("GET", src.Epoch("g"))
			looked := make(chan struct{})
			arm(client, func() {
				defer close(looked)
				m.cancel()
				eventually(t, func() bool { return len(m.Partitions()) == 0 }, "it gave it back")
			})
			<-looked
			m.end()
			require.Equal(t, epoch, r.text("GET", src.Epoch("g")), "and did not take it again")
			require.Zero(t, r.number("EXISTS", src.Lease("g")))
		})
	}
}
