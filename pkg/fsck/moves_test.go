package fsck_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
)

// someMoves are those of a partition that changed its owner, of a key and of a message.
func someMoves() []fsck.Move {
	began := time.Unix(1_700_000_000, 0).UTC()
	at := func(s int, m fsck.Move) fsck.Move {
		m.At, m.Topic, m.Group, m.Partition = began.Add(time.Duration(s)*time.Second), "orders", "g", 1
		return m
	}
	status := func(s int, state string) fsck.Move {
		return fsck.Move{Op: fsck.MoveStatus, Message: "m", State: state, Updated: began.Add(time.Duration(s) * time.Second)}
	}
	return []fsck.Move{
		at(0, fsck.Move{Op: fsck.MoveTake, Owner: "a", Epoch: "100", TTL: 10 * time.Second}),
		at(1, fsck.Move{Op: fsck.MoveEffect, Owner: "a"}),
		at(5, fsck.Move{Op: fsck.MoveRenew, TTL: 10 * time.Second}),
		at(6, fsck.Move{Op: fsck.MoveEffect, Owner: "a", Epoch: "100"}),
		at(15, fsck.Move{Op: fsck.MoveTake, Owner: "b", Epoch: "101", TTL: 10 * time.Second}),
		at(16, fsck.Move{Op: fsck.MoveEffect, Owner: "b"}),
		at(17, fsck.Move{Op: fsck.MoveEffect, Owner: "b", Epoch: "101"}),
		at(18, fsck.Move{Op: fsck.MoveRelease}),
		at(0, fsck.Move{Op: fsck.MoveHandle, Key: "k", ID: "9-0", Attempt: 1}),
		at(0, fsck.Move{Op: fsck.MoveHandle, Key: "k", ID: "10-0", Attempt: 1}),
		at(0, fsck.Move{Op: fsck.MoveHandle, Key: "other", ID: "3-0", Attempt: 1}),
		status(0, "processing"), status(1, "failed"), status(2, "completed"), status(3, "completed"),
	}
}

func TestMovesThatAreAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	judged := func(rule string) int64 {
		t.Helper()
		r := w.check().Rule(rule)
		require.Zero(t, r.Violations, r.Examples)
		return r.Judged
	}
	require.EqualValues(t, []int64{6, 3, 4}, []int64{judged("I31"), judged("I32"), judged("I33")})
	for name, next := range map[string][]fsck.Move{
		"taken after a release": {{Op: fsck.MoveTake, At: w.moves[7].At, Owner: "a", Epoch: "102", TTL: time.Second}},
		"taken again by the same": {
			{Op: fsck.MoveTake, At: w.moves[7].At, Owner: "a", Epoch: "102", TTL: time.Hour},
			{Op: fsck.MoveTake, At: w.moves[7].At, Owner: "a", Epoch: "1030", TTL: time.Hour},
		},
		"an epoch set by an operator": {
			{Op: fsck.MoveTake, At: w.moves[7].At, Epoch: "102"}, {Op: fsck.MoveTake, At: w.moves[7].At, Owner: "a", Epoch: "103", TTL: time.Hour},
		},
		"taken after a loss": {
			{Op: fsck.MoveTake, At: w.moves[7].At, Owner: "a", Epoch: "102", TTL: time.Hour}, {Op: fsck.MoveGap},
			{Op: fsck.MoveTake, At: w.moves[7].At, Owner: "b", Epoch: "103", TTL: time.Hour}, {Op: fsck.MoveStatus, Message: "m", State: "processing"},
		},
		"an old entry again, and a retry": {
			{Op: fsck.MoveHandle, Key: "k", ID: "9-0", Attempt: 1}, {Op: fsck.MoveHandle, Key: "k", ID: "8-0", Attempt: 2},
		},
	} {
		w.moves = someMoves()
		for _, m := range next {
			m.Topic, m.Group, m.Partition = "orders", "g", 1
			w.moves = append(w.moves, m)
		}
		for _, rule := range []string{"I31", "I32", "I33"} {
			require.Positive(t, judged(rule), name)
		}
	}
}

func TestBreachesInPartitionsAreCaught(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]breach{
		"two owners":                 {"I31", func(w *world) { w.moves[4].At = w.moves[4].At.Add(-5 * time.Second) }, "b took the lease at"},
		"renewed by another's leave": {"I31", func(w *world) { w.moves[2].TTL = time.Minute }, "a had it until"},
		"an epoch falls":             {"I31", func(w *world) { w.moves[4].Epoch = "99" }, "epoch 99 of b came after 100"},
		"an epoch falls after a loss": {"I31", func(w *world) {
			w.moves = slices.Insert(w.moves, 4, fsck.Move{Op: fsck.MoveGap})
			w.moves[5].Epoch = "99"
		}, "epoch 99 of b came after 100"},
		"settled by the old owner": {"I31", func(w *world) { w.moves[6].Epoch = "100" }, "under epoch 100, the epoch was 101"},
		"read by the old owner":    {"I31", func(w *world) { w.moves[5].Owner = "a" }, "a read at"},
		"a key out of order":       {"I32", func(w *world) { w.moves[8], w.moves[9] = w.moves[9], w.moves[8] }, "entry 9-0 of key k was begun after 10-0"},
		"versions out of order": {"I32", func(w *world) {
			document := w.goodDocument()
			newer, older := w.accept(document, "key-8"), w.accept(document, "key-9")
			w.claim(newer, "w1", "0:1700000000500-0")
			w.claim(older, "w1", "0:1700000000100-0")
			w.edit(`created_at = ?`, `task_id = ? AND to_status = 'RUNNING'`, now().Add(time.Minute), older)
		}, "of the same document by entry 1700000000500-0"},
		"back from completed": {"I33", func(w *world) { w.moves[14].State = "processing" }, "it was completed at"},
		"back in time":        {"I33", func(w *world) { w.moves[12].Updated = w.moves[11].Updated.Add(-time.Second) }, "came after that of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databases["sqlite"](t))
			b.spoil(w)
			got := w.check().Rule(b.rule)
			require.NotZero(t, got.Violations, "%s saw nothing", b.rule)
			text := ""
			for _, e := range got.Examples {
				text += e.Problem + "\n"
			}
			require.Contains(t, text, b.want)
		})
	}
}
