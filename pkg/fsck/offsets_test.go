package fsck_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
)

// newKafkaWorld is a world at rest on Kafka: three records, all finished; the dead task's letter went by the outbox.
func newKafkaWorld(t *testing.T, kind string) *world {
	t.Helper()
	w := newWorld(t, databases[kind](t))
	w.queue.state = ingestq.State{Commits: true, Length: 3, Parts: []ingestq.Part{{Number: 0, Newest: 3, Committed: 3}, {Number: 1, Committed: -1}}}
	w.state("dlq_state = 'none'", w.dead)
	w.state("delivery = 'k:0:2'", w.dead)
	w.deadLetter("SENT")
	return w
}

// deadLetter puts the dead task's letter into the outbox.
func (w *world) deadLetter(status string) {
	w.sql(`DELETE FROM outbox_event WHERE message_key = ?`, w.dead)
	w.sent(w.dead)
	w.sql(`UPDATE outbox_event SET topic = 'ingest-tasks-dlq', payload = '{"taskId":"x","fence":1,"sourceStream":"ingest-tasks"}' WHERE message_key = ?`, w.dead)
	w.unsend(w.dead, status)
}

// unsend gives the events of a task a state.
func (w *world) unsend(task, status string) {
	if status != "SENT" {
		w.sql(`UPDATE outbox_event SET status = ?, sent_at = NULL WHERE message_key = ?`, status, task)
	}
}

// waiting makes a task that was promised an hour ago, by an event of then. Its record may be below any committed offset.
func (w *world) waiting(status string) (task string) {
	w.options.Rest = false
	task = w.accept(w.id("8002"), "key-8")
	w.state("promised_at = ?, wake_at = ?", task, ago(), ago())
	w.sql(`UPDATE ingest_task_body SET created_at = ? WHERE id = ?`, ago(), task)
	w.sent(task)
	w.sql(`UPDATE outbox_event SET created_at = ?, sent_at = ? WHERE message_key = ?`, ago(), ago(), task)
	w.unsend(task, status)
	return task
}

// part sets where the group is in partition 0, at the first look and after.
func (w *world) part(was, is ingestq.Part) {
	later := w.queue.state
	w.queue.state.Parts, later.Parts = []ingestq.Part{was}, []ingestq.Part{is}
	w.queue.later = &later
}

func TestAKafkaWorldThatKeepsEveryRule(t *testing.T) {
	t.Parallel()
	for kind := range labserver.Databases(databases) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newKafkaWorld(t, kind)
			w.queue.deadLetters = append(w.queue.deadLetters, ingestq.WrittenDeadLetter{ID: "k:0:1"}) // raw bytes
			report := w.check()
			require.NoError(t, report.Err())
			require.NoError(t, report.RequireJudged("I15", "I16", "I18", "I21", "L3", "L5"))
			for _, id := range []string{"I19", "I20", "L4"} {
				require.NotEmpty(t, report.Rule(id).NotJudged, id)
			}
		})
	}
}

// kafkaBreaches break what Kafka or its rows say, one at a time.
var kafkaBreaches = map[string]breach{
	"offset: beyond the log": {"I21", func(w *world) {
		w.part(ingestq.Part{Newest: 3, Committed: 9}, ingestq.Part{Newest: 4, Committed: 9})
	}, "offset 9 is committed, the log ends at 4"},
	"offset: fell": {"I21", func(w *world) {
		w.part(ingestq.Part{Newest: 3, Committed: 3}, ingestq.Part{Newest: 3, Committed: 2})
	}, "fell from 3 to 2"},
	"record: not finished at rest":      {"L5", func(w *world) { w.queue.state.Watermark = now() }, "has not finished a record"},
	"queued: record finished too early": {"I15", func(w *world) { w.waiting("SENT") }, "has no delivery since"},
	"queued: of the other transport":    {"I15", func(w *world) { w.options.Rest = false; w.forget() }, "has no delivery since"},
	"letter: sent and not there":        {"I18", func(w *world) { w.queue.deadLetters = nil }, "there is none"},
	"letter: its event gone, too": {"I18", func(w *world) {
		w.sql(`DELETE FROM outbox_event`)
		w.queue.deadLetters = nil
	}, "there is none"},
	"letter: removed before it died": {"I18", func(w *world) {
		w.queue.deadLetters, w.queue.state.DeadLettersFrom = nil, ago()
	}, "there is none"},
	"letter: of no death": {"I18", func(w *world) {
		w.queue.deadLetters = append(w.queue.deadLetters, ingestq.WrittenDeadLetter{ID: "k:0:7", TaskID: w.good, Fence: 1})
	}, "never died"},
	"letter: owed for ever":    {"I18", func(w *world) { w.state("dlq_state = 'owed'", w.dead) }, "is owed since"},
	"letter: not sent at rest": {"L3", func(w *world) { w.deadLetter("NEW") }, "it is NEW since"},
}

func TestEveryBreachOnKafkaIsCaughtByItsRule(t *testing.T) {
	t.Parallel()
	for name, b := range kafkaBreaches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newKafkaWorld(t, "sqlite")
			b.spoil(w)
			got := w.check().Rule(b.rule)
			require.NotZero(t, got.Violations, "%s saw nothing", b.rule)
			require.Contains(t, fmt.Sprint(got.Examples), b.want)
		})
	}
}

// What design D4, D5 and D11 allow is no violation.
func TestWhatKafkaMayLookLike(t *testing.T) {
	t.Parallel()
	for name, allowed := range map[string]func(w *world){
		"below the log's start": func(w *world) {
			w.part(ingestq.Part{Oldest: 2, Newest: 3, Committed: 1}, ingestq.Part{Oldest: 2, Newest: 3, Committed: 3})
		},
		"a new owner set it back to the end of a lost log": func(w *world) {
			w.part(ingestq.Part{Newest: 3, Committed: 9}, ingestq.Part{Newest: 12, Committed: 4})
		},
		"the log was lost and made again": func(w *world) {
			w.part(ingestq.Part{Newest: 9, Committed: 9}, ingestq.Part{Newest: 1, Committed: 0})
		},
		"the group was away for too long": func(w *world) {
			w.part(ingestq.Part{Newest: 3, Committed: 3}, ingestq.Part{Newest: 3, Committed: -1})
		},
		"records are read": func(w *world) {
			w.options.Rest = false
			w.queue.state.Watermark = now()
		},
		"an event waits": func(w *world) {
			id := w.waiting("NEW")
			w.sql(`UPDATE outbox_event SET wake_at = ? WHERE message_key = ?`, now(), id)
		},
		"an event died": func(w *world) { w.waiting("DEAD") },
		"it was sent lately": func(w *world) {
			w.sql(`UPDATE outbox_event SET sent_at = ? WHERE message_key = ?`, now(), w.waiting("SENT"))
		},
		"the group is not there yet": func(w *world) {
			w.waiting("SENT")
			w.queue.state.Watermark = ago()
		},
		"no horizon": func(w *world) {
			w.waiting("SENT")
			w.queue.state.NoWatermark = true
		},
		"a dead letter is on its way": func(w *world) {
			w.deadLetter("NEW")
			w.options.Rest, w.queue.deadLetters = false, nil
		},
		"a dead letter was refused": func(w *world) {
			w.deadLetter("DEAD")
			w.queue.deadLetters = nil
		},
		"retention took the dead letter": func(w *world) {
			w.queue.deadLetters, w.queue.state.DeadLettersFrom = nil, now().Add(time.Hour)
		},
		"a dead letter of the other transport": func(w *world) {
			w.sql(`DELETE FROM outbox_event`)
			w.state("dlq_state = 'written'", w.dead)
			w.queue.deadLetters = nil
		},
		"a death of the other transport without dead letters": func(w *world) {
			w.sql(`DELETE FROM outbox_event`)
			w.state("delivery = '1-0'", w.dead)
			w.queue.deadLetters = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newKafkaWorld(t, "sqlite")
			allowed(w)
			report := w.check()
			for _, id := range []string{"I15", "I16", "I18", "I21", "L3", "L5"} {
				require.Empty(t, report.Rule(id).Examples, id)
			}
		})
	}
}

// Without a read watermark neither promises nor readers are judged.
func TestWithoutAWatermarkOfKafka(t *testing.T) {
	t.Parallel()
	w := newKafkaWorld(t, "sqlite")
	w.queue.state.NoWatermark = true
	require.NotEmpty(t, w.check().Rule("L5").NotJudged)
}

// Redis' read watermark says nothing of a task whose delivery went by Kafka.
func TestRedisJudgesNoEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.waiting("SENT")
	require.Empty(t, w.check().Rule("I15").Examples)
}
