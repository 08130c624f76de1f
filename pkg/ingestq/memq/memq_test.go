package memq_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/ingestqtest"
	"github.com/millweir/millweir/pkg/ingestq/memq"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	ingestqtest.Run(t, ingestqtest.Features{Lag: true, DeadLetters: true, ForgetsGone: true}, bench)
}

// bench is an empty queue; its dead letters are shown with the fields of contract §5.
func bench(*testing.T) ingestqtest.Bench {
	q, members := memq.New(memq.Options{}), 0
	return ingestqtest.Bench{
		Member: func() ingestq.PendingQueue {
			members++
			return q.Join(fmt.Sprint("member-", members)).(ingestq.PendingQueue)
		},
		DeadLetters: func() []map[string]string { return fields(q.DeadLetters()) },
		AddRaw:      q.Add,
		DeleteData:  q.Delete,
		Wipe:        q.Wipe,
		Kill:        func(m ingestq.PendingQueue) { q.Kill(m.Name()) },
		Clock:       time.Now,
		Probe:       func(context.Context) error { return nil },
	}
}

func fields(deadLetters []ingestq.StoredDeadLetter) []map[string]string {
	out := make([]map[string]string, len(deadLetters))
	for i, l := range deadLetters {
		m := map[string]string{
			"sourceStream": "memory", "sourceGroup": "memory", "sourceRecordId": l.SourceRecordID, "lastError": l.LastError,
			"failedAt": l.FailedAt.UTC().Format("2006-01-02T15:04:05.000000Z"),
		}
		if l.Raw == nil {
			m["taskId"], m["fence"], m["attemptCount"] = l.TaskID, strconv.FormatInt(l.Fence, 10), strconv.Itoa(l.AttemptCount)
		}
		for k, v := range l.Raw {
			if m[k] != "" {
				k = "raw." + k
			}
			m[k] = v
		}
		out[i] = m
	}
	return out
}

// A queue that commits offsets counts what is not finished as not read, and gives it again.
func TestCommits(t *testing.T) {
	t.Parallel()
	q := memq.New(memq.Options{Commits: true})
	m := q.Join("one")
	_, pending := m.(ingestq.PendingQueue)
	require.False(t, pending)
	id := q.Add(map[string]string{"taskId": "t"})
	require.Equal(t, id, read(t, m)[0].ID)
	w, err := m.Watermark(t.Context())
	require.NoError(t, err)
	require.False(t, w.At.IsZero(), "it is not finished")
	q.Rebalance()
	require.Equal(t, id, read(t, m)[0].ID)
	require.NoError(t, m.Ack(t.Context(), id))
	q.Rebalance()
	require.Empty(t, read(t, m))
	w, err = m.Watermark(t.Context())
	require.NoError(t, err)
	require.True(t, w.At.IsZero())
}

func read(t *testing.T, m ingestq.Consumer) []ingestq.Delivery {
	t.Helper()
	ds, err := m.Read(t.Context(), 10, 0)
	require.NoError(t, err)
	return ds
}
