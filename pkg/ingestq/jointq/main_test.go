package jointq

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/ingestqtest"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/redisclient"
	pb "github.com/millweir/millweir/proto"
)

const (
	waitLimit = 2 * time.Minute // of a wait for something that must come
	workflow  = "workflow.execute"
	document  = "document"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// The joint queue is a queue: whichever of the two carries the tasks.
func TestConforms(t *testing.T) {
	t.Parallel()
	for name, carrier := range map[string]int{"first": first, "second": second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ingestqtest.Run(t, ingestqtest.Features{Lag: true, DeadLetters: true, ForgetsGone: true},
				func(t *testing.T) ingestqtest.Bench { return newRig(t, labserver.RedisURL(t)).bench(t, carrier) })
		})
	}
}

func TestConformsEmbedded(t *testing.T) {
	t.Parallel()
	ingestqtest.Run(t, ingestqtest.Features{DeadLetters: true}, func(t *testing.T) ingestqtest.Bench {
		url, stop, err := embedded.Start()
		require.NoError(t, err)
		t.Cleanup(stop)
		return newRig(t, url).bench(t, second)
	})
}

// rig is one Redis database with two streams.
type rig struct {
	raw  rueidis.Client
	cfgs [number]redisq.Config
}

func newRig(t testing.TB, url string) *rig {
	t.Helper()
	r := &rig{cfgs: [number]redisq.Config{redisq.NewDefaultConfig(url), redisq.NewDefaultConfig(url)}}
	r.cfgs[second].StreamKey, r.cfgs[second].Group = "queue:tasks", "persist-workers"
	r.raw = r.client(t)
	return r
}

func (r *rig) client(t testing.TB) rueidis.Client {
	t.Helper()
	client, err := redisclient.New(r.cfgs[first].URL)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// single is a member of the group of one queue.
func (r *rig) single(t testing.TB, at int, name string) *redisq.Queue {
	t.Helper()
	part := redisq.Part{Member: name, Beats: r.cfgs[at].StreamKey}
	return redisq.NewPart(r.client(t), r.cfgs[at], part, r.log(), time.Now, nil)
}

func (r *rig) inspector(t testing.TB, at int) *redisq.Inspector {
	t.Helper()
	return redisq.NewInspector(r.raw, r.cfgs[at])
}

func (r *rig) log() *slog.Logger { return slog.New(slog.DiscardHandler) }

// member is another member of both groups; change may be nil.
func (r *rig) member(t testing.TB, change func(o *Options)) *Queue {
	t.Helper()
	o := Options{Second: func(taskType string) bool { return taskType == workflow }, Log: r.log()}
	if change != nil {
		change(&o)
	}
	name := ingestq.MemberName()
	q := New(r.single(t, first, name), r.single(t, second, name), o)
	t.Cleanup(q.reads.Wait)
	return q
}

func (r *rig) do(t testing.TB, args ...string) rueidis.RedisMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, err := r.raw.Do(ctx, r.raw.B().Arbitrary(args...).Build()).ToMessage()
	if !rueidis.IsRedisNil(err) {
		require.NoError(t, err, "%v", args)
	}
	return m
}

// bench is a joint queue of which one carries all tasks.
func (r *rig) bench(t *testing.T, carrier int) ingestqtest.Bench {
	cfg := r.cfgs[carrier]
	return ingestqtest.Bench{
		Locator: func() ingestq.Locator {
			publisher := func(at int) *redisq.Publisher {
				return redisq.NewPublisher(r.client(t), r.cfgs[at], r.log(), time.Now, nil)
			}
			return NewPublisher(publisher(first), publisher(second), func(string) bool { return carrier == second })
		},
		Member: func() ingestq.PendingQueue {
			return r.member(t, func(o *Options) { o.Second = func(string) bool { return carrier == second } })
		},
		DeadLetters: func() []map[string]string {
			m := r.do(t, "XRANGE", cfg.DLQKey, "-", "+")
			entries, err := m.AsXRange()
			require.NoError(t, err)
			deadLetters := make([]map[string]string, len(entries))
			for i, e := range entries {
				deadLetters[i] = e.FieldValues
				if deadLetters[i]["sourceStream"] == r.cfgs[second].StreamKey { // the stream is named beside it
					deadLetters[i]["sourceRecordId"] = idOf(second, deadLetters[i]["sourceRecordId"])
				}
			}
			return deadLetters
		},
		AddRaw: func(fields map[string]string) string {
			args := []string{"XADD", cfg.StreamKey, "*"}
			for k, v := range fields {
				args = append(args, k, v)
			}
			m := r.do(t, args...)
			id, err := m.ToString()
			require.NoError(t, err)
			return idOf(carrier, id)
		},
		DeleteData: func(id string) {
			_, own := splitID(id)
			r.do(t, "XDEL", cfg.StreamKey, own)
		},
		Wipe: func() { r.do(t, "FLUSHDB") },
		Kill: func(member ingestq.PendingQueue) {
			r.do(t, "DEL", cfg.StreamKey+":alive:"+cfg.Group+":"+member.Name())
		},
		Clock: func() time.Time {
			m := r.do(t, "TIME")
			parts, err := m.AsStrSlice()
			require.NoError(t, err)
			var sec, usec int64
			_, err = fmt.Sscan(parts[0]+" "+parts[1], &sec, &usec)
			require.NoError(t, err)
			return time.Unix(sec, usec*1000)
		},
		Probe: func(ctx context.Context) error { return r.raw.Do(ctx, r.raw.B().Ping().Build()).Error() },
	}
}

// tasks are n envelopes of a type.
func tasks(taskType string, n int) []*pb.TaskEnvelope {
	all := make([]*pb.TaskEnvelope, n)
	for i := range all {
		all[i] = &pb.TaskEnvelope{SchemaVersion: pb.SchemaVersion, TaskId: fmt.Sprintf("%s-%04d", taskType, i), Type: taskType, UserId: "local"}
	}
	return all
}
