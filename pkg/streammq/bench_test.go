package streammq

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const benchBatch = 256

// BenchmarkPublish against the same bytes sent by hand in the same pipeline.
func BenchmarkPublish(b *testing.B) {
	payload := []byte(strings.Repeat("x", 200))
	b.Run("raw", func(b *testing.B) {
		r := newRig(b, LayoutSingle)
		e := wire.Entry{Payload: payload, MaxRetries: 5, Topic: r.topic, Key: "k", Headers: map[string]string{HeaderUUID: model.NewUUID(r.mq(nil).core.Cfg.Now())}}
		for n := 0; n < b.N; n += benchBatch {
			commands := make(rueidis.Commands, benchBatch)
			for i := range commands {
				commands[i] = r.client.B().Arbitrary("XADD").Keys(r.source(0).Stream()).Args("*").Args(e.Fields()...).Build()
			}
			require.NoError(b, stream.FirstError(r.client.DoMulti(b.Context(), commands...)))
		}
	})
	b.Run("streammq", func(b *testing.B) {
		r := newRig(b, LayoutSingle)
		q := r.mq(nil)
		r.topicOf(q, 1)
		p := q.NewProducer(nil)
		messages := make([]Message, benchBatch)
		for i := range messages {
			messages[i] = Message{Key: "k", Payload: payload}
		}
		b.ReportAllocs()
		for n := 0; n < b.N; n += benchBatch {
			_, err := p.PublishBatch(b.Context(), r.topic, messages)
			require.NoError(b, err)
		}
	})
}

// reportCPU tells what each message costs the server and this process from here to the end of the benchmark: on a busy
// machine that says more than the time that passes.
func reportCPU(b *testing.B, client rueidis.Client) {
	b.Helper()
	server := func() float64 {
		info, err := client.Do(context.Background(), client.B().Info().Section("cpu").Build()).ToString()
		require.NoError(b, err)
		sum := 0.0
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
				seconds, err := strconv.ParseFloat(value, 64)
				require.NoError(b, err)
				sum += seconds
			}
		}
		return sum
	}
	own := func() float64 {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	there, here := server(), own()
	b.Cleanup(func() {
		b.ReportMetric((server()-there)/float64(b.N)*1e9, "server-ns/op")
		b.ReportMetric((own()-here)/float64(b.N)*1e9, "client-ns/op")
	})
}

// BenchmarkConsume reads and acknowledges what was published before, against XREADGROUP and XACK by hand.
func BenchmarkConsume(b *testing.B) {
	fill := func(b *testing.B) (*rig, *MQ) {
		r := newRig(b, LayoutSingle)
		q := r.mq(nil)
		r.topicOf(q, 1)
		messages := make([]Message, benchBatch)
		for i := range messages {
			messages[i] = Message{Key: "k", Payload: []byte(strings.Repeat("x", 200))}
		}
		for n := 0; n < b.N; n += benchBatch {
			_, err := q.NewProducer(nil).PublishBatch(b.Context(), r.topic, messages)
			require.NoError(b, err)
		}
		r.do("XGROUP", "CREATE", r.source(0).Stream(), "g", "0")
		b.ResetTimer()
		reportCPU(b, r.client)
		return r, q
	}
	b.Run("raw", func(b *testing.B) {
		r, _ := fill(b)
		stream := r.source(0).Stream()
		for n := 0; n < b.N; n += benchBatch {
			got, err := r.client.Do(b.Context(), r.client.B().Xreadgroup().Group("g", "c").Count(benchBatch).Streams().Key(stream).Id(">").Build()).AsXRead()
			require.NoError(b, err)
			ids := make([]string, 0, benchBatch)
			for _, e := range got[stream] {
				ids = append(ids, e.ID)
			}
			require.NoError(b, r.client.Do(b.Context(), r.client.B().Xack().Key(stream).Group("g").Id(ids...).Build()).Error())
		}
	})
	b.Run("streammq", func(b *testing.B) {
		r, q := fill(b)
		want := int64((b.N + benchBatch - 1) / benchBatch * benchBatch)
		var n atomic.Int64
		done := make(chan struct{})
		cfg := NewDefaultSubscriberConfig(r.topic, "g", func(context.Context, *Delivery) Result {
			if n.Add(1) == want {
				close(done)
			}
			return Success()
		})
		cfg.Batch = benchBatch
		b.ReportAllocs()
		r.run(q, cfg)
		<-done
	})
}
