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
	q, members := memq.New(memq.Options{Clock: time.Now}), 0
	return ingestqtest.Bench{
		Member: func() ingestq.PendingQueue {
			members++
			return q.Join(fmt.Sprint("member-", members)).(ingestq.PendingQueue)
		},
		DeadLetters: func() (out []map[string]string) {
			q.Change(func(c *memq.Content) { out = fields(c.DeadLetters) })
			return out
		},
		AddRaw: q.Add,
		DeleteData: func(id string) {
			q.Change(func(c *memq.Content) {
				for _, e := range c.Entries {
					if e.ID == id {
						e.Delivery, e.Gone = ingestq.Delivery{ID: id}, true
					}
				}
			})
		},
		Wipe:  func() { q.Change(func(c *memq.Content) { c.Entries, c.DeadLetters = nil, nil }) },
		Kill:  func(m ingestq.PendingQueue) { q.Change(func(c *memq.Content) { delete(c.Alive, m.Name()) }) },
		Clock: time.Now,
		Probe: func(context.Context) error { return nil },
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
	q := memq.New(memq.Options{Commits: true, Clock: time.Now})
	m := q.Join("one")
	_, pending := m.(ingestq.PendingQueue)
	require.False(t, pending)
	id := q.Add(map[string]string{"taskId": "t"})
	require.Equal(t, id, read(t, m)[0].ID)
	w, err := m.Watermark(t.Context())
	require.NoError(t, err)
	require.False(t, w.At.IsZero(), "it is not finished")
	rebalance(q)
	require.Equal(t, id, read(t, m)[0].ID)
	require.NoError(t, m.Ack(t.Context(), id))
	rebalance(q)
	require.Empty(t, read(t, m))
	w, err = m.Watermark(t.Context())
	require.NoError(t, err)
	require.True(t, w.At.IsZero())
}

// rebalance gives what is not finished to be read again, as a group does when a member leaves.
func rebalance(q *memq.Queue) {
	q.Change(func(c *memq.Content) {
		for _, e := range c.Entries {
			if !e.Done {
				e.Consumer = ""
			}
		}
	})
}

func read(t *testing.T, m ingestq.Consumer) []ingestq.Delivery {
	t.Helper()
	ds, err := m.Read(t.Context(), 10, 0)
	require.NoError(t, err)
	return ds
}
