package taskrun

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Every committed outcome lets the offset move on; retries run from the table.
func TestRecordsEndWithTheOutcome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		kind := &testHandler{run: func(_ context.Context, j Job) Result {
			switch {
			case j.Task.ID == "ends":
				return Result{}
			case j.Task.ID == "dies":
				return Result{Err: errHopeless}
			case j.Task.AttemptCount == 0:
				return Result{Err: errors.New("once")}
			}
			return Result{}
		}}
		var records []string
		for _, id := range []string{"ends", "dies", "retries"} {
			records = append(records, w.task(id))
		}
		w.task("suspends", func(t *taskstate.Task) { t.Type = "unknown" })
		p := w.start("a", kind, func(c *Config) { c.Policy.BaseBackoff = time.Minute })
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusRetrying, w.store.get("retries").Status)
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending, "a retry holds no record up")
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 2, taskstate.StatusDead: 1, taskstate.StatusSuspended: 1}, w.store.statuses())
		require.Equal(t, taskstate.DLQNone, w.store.get("dies").DLQ)
		require.Equal(t, []ingestq.UnsentDeadLetter{{Seq: 1, TaskID: "dies", Fence: 1}}, w.outbox.unsent(), "its dead letter went with the row")
		require.Equal(t, records[2], w.store.get("retries").Delivery, "the row says what brought it last")
		_, _, added, deadLetters := w.stream.counts()
		require.Equal(t, []int{4, 0}, []int{added, deadLetters})
		require.InDelta(t, 2, p.result(local.ResultSucceeded), 0)
	})
}

// What a claim returns lets the offset move on, also for the row's own record.
func TestRecordsEndWithTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		own := map[string]string{}
		hour := instant().Add(time.Hour)
		for id, row := range map[string]taskstate.Task{
			"not due": {Status: taskstate.StatusRetrying, NextRetryAt: hour, WakeAt: hour},
			"busy":    {Status: taskstate.StatusRunning, Fence: 3, LeaseOwner: "b/1", WakeAt: hour},
			"skipped": {Status: taskstate.StatusSucceeded},
			"owes":    {Status: taskstate.StatusDead, DLQ: taskstate.DLQOwed, WakeAt: hour},
		} {
			own[id] = w.stream.send(id)
			row.ID, row.Delivery = id, own[id]
			w.store.put(row)
		}
		own["gone"] = w.stream.send("gone")
		w.start("a", &testHandler{})
		stillFor(time.Second)
		_, pending, _, _ := w.stream.counts()
		require.Zero(t, pending)
	})
}

// A row that cannot be claimed for its own sake holds up no partition: its promise brings it again.
func TestRecordOfARowThatFailsAloneEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		var well atomic.Bool
		kind := &testHandler{onTransition: func(changed []taskstate.Decision, _ map[string]any) error {
			if !well.Load() && changed[0].Change.To == taskstate.StatusRunning {
				return errors.New("the document's row is broken")
			}
			return nil
		}}
		id := w.task("x")
		w.start("a", kind)
		stillFor(time.Second)
		require.Equal(t, taskstate.StatusQueued, w.store.get("x").Status)
		require.False(t, w.stream.claims(id))
		well.Store(true)
		stillFor(10 * time.Second)
		require.Equal(t, taskstate.StatusSucceeded, w.store.get("x").Status)
	})
}

// A claim that was lost to another counts as done, whether the run learns it or its outcome does.
func TestRecordOfALostClaimEnds(t *testing.T) {
	for name, learns := range map[string]bool{"the run learns it": true, "its outcome does": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTopicWorld(t)
				id := w.task("x")
				free := make(chan struct{})
				p := w.start("a", &testHandler{run: func(ctx context.Context, _ Job) Result {
					select {
					case <-free:
						return Result{}
					case <-ctx.Done():
						return Result{Err: ctx.Err()}
					}
				}})
				stillFor(time.Second)
				require.True(t, w.stream.claims(id), "the record of a held claim is kept")
				w.store.change("x", func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Cancel(m, t, taskstate.System().Actor(), taskstate.ReasonCancelled, "")
				})
				if learns {
					stillFor(p.cfg.Policy.Lease) // a heartbeat asks
				}
				close(free)
				stillFor(time.Second)
				require.False(t, w.stream.claims(id))
				require.InDelta(t, 1, testutil.ToFloat64(p.m.Lost), 0)
			})
		})
	}
}

// A run that ignores its end is given up, and so is its record: the row's lease brings the task again.
func TestRecordOfAHungRunEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		id := w.task("x")
		free := make(chan struct{})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-free; return Result{} }}, func(c *Config) {
			c.StallLimit = map[taskstate.Stage]time.Duration{taskstate.StageNone: time.Second}
		})
		stillFor(10 * time.Second)
		require.InDelta(t, 1, testutil.ToFloat64(p.m.SlotsLost), 0)
		require.False(t, w.stream.claims(id))
		close(free)
	})
}

// A task that is handed back has an event of its own transaction; what was read and not claimed at a stop is read again.
func TestStopLeavesUnfinishedRecords(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		held := w.task("held")
		p := w.start("a", &testHandler{run: func(ctx context.Context, _ Job) Result { <-ctx.Done(); return Result{Err: ctx.Err()} }},
			func(c *Config) { c.StopGrace, c.Concurrency = 0, 2 })
		stillFor(time.Second)
		w.store.setFault(func(op string) error {
			if op == "apply" {
				return taskstate.ErrUnavailable
			}
			return nil
		})
		unclaimed := w.task("unclaimed")
		stillFor(time.Second)
		require.True(t, w.stream.claims(unclaimed))
		p.stop()
		stillFor(time.Millisecond)
		w.store.setFault(nil)
		p.end(t)
		require.Equal(t, taskstate.StatusQueued, w.store.get("held").Status)
		require.False(t, w.stream.claims(held))
		require.True(t, w.stream.claims(unclaimed), "its offset stays where it is")
		waiting, pending, added, _ := w.stream.counts()
		require.Equal(t, []int{1, 1, 3}, []int{waiting, pending, added}, "one event for the one that was handed back")
	})
}

// While the process goes on, a record that it cannot claim would hold up the partition: its row is enqueued anew.
func TestUnclaimableRecordsAreEnqueuedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		free := make(chan struct{})
		p := w.start("a", &testHandler{run: func(context.Context, Job) Result { <-free; return Result{} }})
		past := instant().Add(-time.Minute)
		queued, running := w.stream.give("queued", "a"), w.stream.give("running", "a")
		w.store.put(taskstate.Task{ID: "queued", EnqueuedAt: past})
		w.store.put(taskstate.Task{ID: "running", Status: taskstate.StatusRunning, LeaseOwner: "b/1", WakeAt: instant().Add(time.Hour)})
		w.store.setFault(func(op string) error {
			if op == "apply" {
				return taskstate.ErrUnavailable
			}
			return nil
		})
		p.transport.HandBack(t.Context(), []ingestq.Delivery{
			ingestq.Decoded(queued, ingestq.EnvelopeOf(w.store.get("queued"))), ingestq.Decoded(running, ingestq.EnvelopeOf(w.store.get("running"))),
		})
		stillFor(5 * time.Second)
		require.True(t, w.stream.claims(queued), "nothing is acknowledged before the enqueue is committed")
		w.store.setFault(nil)
		stillFor(5 * time.Second)
		require.False(t, w.stream.claims(queued))
		require.False(t, w.stream.claims(running))
		require.Equal(t, taskstate.StatusRunning, w.store.get("queued").Status, "the new event brought it")
		require.NotEqual(t, queued, w.store.get("queued").Delivery)
		close(free)
	})
}

// A retry that recovery runs has no record of this process: nothing is acknowledged for it, whatever id its row says.
func TestRecoveredTasksAcknowledgeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		other := w.stream.give("other", "a") // by chance of the same id as the row's old record
		w.store.put(taskstate.Task{ID: "x", Status: taskstate.StatusRetrying, NextRetryAt: instant(), WakeAt: instant(), Delivery: other})
		w.store.put(taskstate.Task{ID: "y", Status: taskstate.StatusRunning, CrashCount: 2, LeaseOwner: "b/1", WakeAt: instant(), Delivery: other})
		w.start("a", &testHandler{})
		stillFor(time.Minute)
		require.Equal(t, map[taskstate.Status]int{taskstate.StatusSucceeded: 1, taskstate.StatusDead: 1}, w.store.statuses())
		require.True(t, w.stream.claims(other))
	})
}

// The read watermark sweep makes events for what is lost, and only for that.
func TestLostEventsAreWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		past := instant().Add(-time.Minute)
		w.outbox.trails = map[string]taskstate.EventTrail{
			"sent long ago": {LastSent: 3, SentAt: past},
			"waits":         {Waiting: true},
			"died":          {LastDead: 3},
		}
		for _, id := range []string{"never sent", "sent long ago", "waits", "died"} {
			w.store.put(taskstate.Task{ID: id, EnqueuedAt: past})
		}
		p := w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(time.Second)
		_, _, added, _ := w.stream.counts()
		require.Equal(t, 2, added)
		require.InDelta(t, 2, testutil.ToFloat64(p.m.EnqueuedAgain), 0)
		for _, id := range []string{"never sent", "sent long ago", "waits", "died"} {
			require.Equal(t, 1, w.store.get(id).EnqueueCount, id)
		}
		asked := w.outbox.count()
		require.Equal(t, 4, asked)
		stillFor(2 * time.Second)
		require.Equal(t, asked, w.outbox.count(), "all have left the front")
		stillFor(time.Hour)
		_, _, added, _ = w.stream.counts()
		require.Equal(t, 2, added, "what was sent again waits in the topic: healthy")
		require.Less(t, w.outbox.count(), 60, "the others are looked at ever more rarely")
	})
}

// Without a read watermark nothing is judged, and that is no trouble.
func TestNoWatermarkIsNoJudgement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTopicWorld(t)
		w.store.put(taskstate.Task{ID: "x", EnqueuedAt: instant().Add(-time.Minute)})
		w.stream.setFault(func(op string) error {
			if op == "watermark" {
				return fmt.Errorf("the group's offset lies beyond the log: %w", ingestq.ErrNoWatermark)
			}
			return nil
		})
		p := w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(time.Minute)
		require.Zero(t, w.store.get("x").EnqueueCount)
		require.NoError(t, p.Ready())
	})
}

// deadLetterWriter keeps dead letters.
type deadLetterWriter struct{ deadLetters []ingestq.DeadLetter }

func (b *deadLetterWriter) DeadLetters(_ context.Context, ls []ingestq.DeadLetter) error {
	b.deadLetters = append(b.deadLetters, ls...)
	return nil
}

// What the Redis transport left owed becomes an event with its mark, or an entry where Redis is to be had.
func TestOwedLettersOfTheOtherTransport(t *testing.T) {
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprint("redis too: ", both), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newTopicWorld(t)
				box := &deadLetterWriter{}
				if both {
					w.outbox.box = box
				}
				const n = 1200
				for i := range n {
					w.store.put(taskstate.Task{ID: fmt.Sprint("t", i), Status: taskstate.StatusDead, Fence: 4, DLQ: taskstate.DLQOwed, WakeAt: instant(), Delivery: "1-0"})
				}
				w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
				stillFor(10 * time.Second)
				events, entries := n, 0
				if both {
					events, entries = 0, n
				}
				require.Len(t, w.outbox.unsent(), events)
				require.Len(t, box.deadLetters, entries)
				for i := range n {
					require.Equal(t, taskstate.DLQWritten, w.store.get(fmt.Sprint("t", i)).DLQ)
				}
			})
		})
	}
}

// What the Kafka transport left unsent becomes an owed entry, which is written; a dead letter of an earlier death is dropped.
func TestUnsentLettersOfTheOtherTransport(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.outbox = &memOutbox{deadLetters: []ingestq.UnsentDeadLetter{
			{Seq: 1, TaskID: "dead", Fence: 3}, {Seq: 2, TaskID: "dead", Fence: 4},
			{Seq: 3, TaskID: "replayed", Fence: 2}, {Seq: 4, TaskID: "gone", Fence: 1},
		}}
		w.store.put(taskstate.Task{ID: "dead", Status: taskstate.StatusDead, Fence: 4})
		w.store.put(taskstate.Task{ID: "replayed", Status: taskstate.StatusSuspended, Fence: 2})
		w.start("r", &testHandler{}, func(c *Config) { c.MainLoop = false })
		stillFor(time.Second)
		require.Empty(t, w.outbox.unsent())
		deadLetters := w.stream.deadLetters()
		require.Len(t, deadLetters, 1)
		require.Equal(t, "dead 4", fmt.Sprint(deadLetters[0].TaskID, " ", deadLetters[0].Fence))
		require.Equal(t, taskstate.DLQWritten, w.store.get("dead").DLQ)
		stillFor(time.Minute)
		require.Len(t, w.stream.deadLetters(), 1)
	})
}
