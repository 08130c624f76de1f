package redisq

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	pb "github.com/millweir/millweir/proto"
)

// stalled is a connection that loses the answers of reads while it is told to: the server has given the entries.
type stalled struct {
	rueidis.Client

	stalled atomic.Bool
}

func (d *stalled) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	read := slices.Contains(command.Commands(), "XREADGROUP")
	result := d.Client.Do(ctx, command)
	if !read || !d.stalled.Load() {
		return result
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	return d.Client.Do(ended, d.Client.B().Ping().Build())
}

// Entries that reads were given whose answers are lost come with the next reads, in their order and once, also when a slow
// server gives them later.
func TestWhatAnUnansweredReadWasGivenComesNext(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": labserver.RedisURL(t), "embedded": embeddedURL(t)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, url)
			client := &stalled{Client: newTestClient(t, url)}
			now := time.Now()
			q := New(client, r.cfg, slog.New(slog.DiscardHandler), func() time.Time { return now }, nil)
			var published []string
			publish := func(n int) {
				for range n {
					id := strconv.Itoa(len(published))
					ids, err := q.Publish(t.Context(), []*pb.TaskEnvelope{{TaskId: id}})
					require.NoError(t, err)
					published = append(published, ids[0])
				}
			}
			read := func(n int) (ids []string) {
				ds, err := q.Read(t.Context(), n, 0)
				require.NoError(t, err)
				for _, d := range ds {
					ids = append(ids, d.ID)
				}
				return ids
			}
			publish(7)
			require.Equal(t, published[:2], read(2))
			client.stalled.Store(true)
			_, err := q.Read(t.Context(), 2, 0)
			require.ErrorIs(t, err, ingestq.ErrUnavailable)
			r.do(t, "XREADGROUP", "GROUP", r.cfg.Group, q.Name(), "COUNT", "1", "STREAMS", r.cfg.StreamKey, ">")
			client.stalled.Store(false)
			r.do(t, "XDEL", r.cfg.StreamKey, published[3])

			var next []string
			for len(next) < 3 {
				next = append(next, read(1)...)
			}
			require.Equal(t, []string{published[2], published[4], published[5]}, next, "what is deleted is nobody's to read")
			r.do(t, "XREADGROUP", "GROUP", r.cfg.Group, q.Name(), "COUNT", "1", "STREAMS", r.cfg.StreamKey, ">")
			require.Equal(t, published[6:7], read(1), "a slow server gave it after the next read")
			now = now.Add(readGrace)
			require.Empty(t, read(1))
			require.Zero(t, q.missed)
		})
	}
}

// What a working server cannot say in time is not asked again: the reader goes on with what is new.
func TestAnUnansweredLookIsNotRepeated(t *testing.T) {
	t.Parallel()
	url := labserver.RedisURL(t)
	r := newRig(t, url)
	client := &stalled{Client: newTestClient(t, url)}
	q := New(client, r.cfg, slog.New(slog.DiscardHandler), time.Now, nil)
	_, err := q.Read(t.Context(), 1, 0) // makes the group
	require.NoError(t, err)
	_, err = q.Publish(t.Context(), []*pb.TaskEnvelope{{TaskId: "big"}})
	require.NoError(t, err)
	client.stalled.Store(true)
	for range 2 { // the read, and the look
		_, err = q.Read(t.Context(), 1, 0)
		require.ErrorIs(t, err, ingestq.ErrUnavailable)
	}
	client.stalled.Store(false)
	ids, err := q.Publish(t.Context(), []*pb.TaskEnvelope{{TaskId: "next"}})
	require.NoError(t, err)
	ds, err := q.Read(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Len(t, ds, 1)
	require.Equal(t, ids[0], ds[0].ID)
}
