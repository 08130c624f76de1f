package redisq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

// BenchmarkPublishReadAck moves deliveries through real Redis in batches of 500; one operation is one delivery.
func BenchmarkPublishReadAck(b *testing.B) {
	q := newRig(b, labserver.RedisURL(b)).queue(nil)
	const batch = 500
	envelopes := tasks(batch)
	b.ReportAllocs()
	for left := b.N; left > 0; left -= batch {
		_, err := q.Publish(b.Context(), envelopes)
		require.NoError(b, err)
		for got := 0; got < batch; {
			some, err := q.Read(b.Context(), batch, time.Second)
			require.NoError(b, err)
			ids := make([]string, 0, batch)
			for _, d := range some {
				ids = append(ids, d.ID)
			}
			require.NoError(b, q.Ack(b.Context(), ids...))
			got += len(some)
		}
	}
	_, err := q.Trim(b.Context())
	require.NoError(b, err)
}

// BenchmarkPublish adds single deliveries from many goroutines, as uploads do.
func BenchmarkPublish(b *testing.B) {
	r := newRig(b, labserver.RedisURL(b))
	q := r.queue(nil)
	envelopes := tasks(1)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := q.Publish(b.Context(), envelopes); err != nil {
				b.Error(err)
			}
		}
	})
	r.do(b, "FLUSHDB")
}

// BenchmarkTrim removes 1,000 finished entries at a time.
func BenchmarkTrim(b *testing.B) {
	q := newRig(b, labserver.RedisURL(b)).queue(nil)
	for b.Loop() {
		b.StopTimer()
		publish(b, q, 1000)
		require.NoError(b, q.Ack(b.Context(), read(b, q, 1000)...))
		b.StartTimer()
		n, err := q.Trim(b.Context())
		require.NoError(b, err)
		require.EqualValues(b, 1000, n)
	}
}
