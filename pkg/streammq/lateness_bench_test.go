package streammq

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRetryLateness tells how much later than asked for a failed message runs again while 10,000 others wait:
// "steady" is 500 failures a second with the others not due, "burst" all 10,000 failing as fast as they are read.
func BenchmarkRetryLateness(b *testing.B) {
	const waiting, delay = 10_000, time.Second
	for _, mode := range []RetryMode{RetryRepublish, RetryInPlace} {
		for _, load := range []string{"steady", "burst"} {
			b.Run(fmt.Sprintf("%s/%s", mode, load), func(b *testing.B) {
				r := newRig(b, LayoutSingle)
				q := r.mq(nil)
				r.topicOf(q, 4)
				var mu sync.Mutex
				put, asked := 0, map[string]time.Time{}
				var late []time.Duration
				cfg := NewDefaultSubscriberConfig(r.topic, "g", func(_ context.Context, d *Delivery) Result {
					now := time.Now()
					mu.Lock()
					defer mu.Unlock()
					if load == "steady" && len(d.Payload) == 0 {
						put++
						return RetryAfter(time.Hour, errBoom)
					}
					if d.Attempt == 1 {
						asked[d.UUID] = now
						return RetryAfter(delay, errBoom)
					}
					late = append(late, now.Sub(asked[d.UUID])-delay)
					return Success()
				})
				cfg.RetryMode, cfg.Batch = mode, 256
				count := func() (int, int) {
					mu.Lock()
					defer mu.Unlock()
					return put, len(late)
				}
				producer := q.NewProducer(nil)
				want := waiting
				if load == "steady" {
					_, err := producer.PublishBatch(b.Context(), r.topic, make([]Message, waiting))
					require.NoError(b, err)
					r.run(q, cfg)
					eventually(b, func() bool { n, _ := count(); return n == waiting }, "they wait")
					want = 2500
					tick := time.NewTicker(20 * time.Millisecond)
					defer tick.Stop()
					for i := 0; i < want; i += 10 {
						<-tick.C
						batch := make([]Message, 10)
						for j := range batch {
							batch[j] = Message{Key: strconv.Itoa(i + j), Payload: []byte("x")}
						}
						_, err := producer.PublishBatch(b.Context(), r.topic, batch)
						require.NoError(b, err)
					}
				} else {
					_, err := producer.PublishBatch(b.Context(), r.topic, make([]Message, waiting))
					require.NoError(b, err)
					r.run(q, cfg)
				}
				eventually(b, func() bool { _, n := count(); return n == want }, "all ran again")
				slices.Sort(late)
				b.ReportMetric(0, "ns/op")
				for name, share := range map[string]float64{"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1} {
					b.ReportMetric(late[min(len(late)-1, int(share*float64(len(late))))].Seconds()*1000, name)
				}
			})
		}
	}
}
