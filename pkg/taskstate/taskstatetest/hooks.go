package taskstatetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/taskstate"
)

func testAlsoFails(t *testing.T, b *bench) {
	id, boom := b.queued(1)[0], errors.New("boom")
	before := b.get(id)
	_, err := b.s.Apply(b.ctx, taskstate.Batch{
		IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(b.claiming("p1")),
		OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision) error {
			var status string
			if err := tx.QueryRowContext(ctx, "SELECT status FROM ingest_task WHERE id = ?", id).Scan(&status); err != nil {
				return err
			}
			if status != "RUNNING" || len(changed) != 1 || changed[0].Answer != taskstate.AnswerClaimed || m.Now.IsZero() {
				t.Errorf("also ran before the update: %s, %+v", status, changed)
			}
			return boom
		},
	})
	if !errors.Is(err, boom) {
		t.Fatalf("got %v, want the hook's own error", err)
	}
	b.same(before)
	equal(t, "log", len(b.log(id)), 1)

	_, err = b.s.Apply(b.ctx, taskstate.Batch{
		IDs: []string{id}, Scope: taskstate.System(),
		Decide: func(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Task) ([]taskstate.Decision, error) {
			return nil, boom
		},
	})
	if !errors.Is(err, boom) {
		t.Fatalf("got %v, want the hook's own error", err)
	}
	// Decisions that leave a row out, or break the rules, change nothing.
	out, err := b.s.Apply(b.ctx, taskstate.Batch{
		IDs: []string{id}, Scope: taskstate.System(),
		Decide: func(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Task) ([]taskstate.Decision, error) {
			return nil, nil
		},
	})
	b.fatalIf(err)
	equal(t, "answer", out[0].Answer, taskstate.AnswerKept)
	for name, spoil := range map[string]func(c *taskstate.Change){
		"an illegal move":          func(c *taskstate.Change) { c.To = taskstate.StatusSucceeded },
		"another fence":            func(c *taskstate.Change) { c.Fence++ },
		"another task":             func(c *taskstate.Change) { c.TaskID = newID() },
		"a silent change of state": func(c *taskstate.Change) { c.Silent = true },
	} {
		_, err = b.s.Apply(b.ctx, taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(
			func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				d := b.claiming("p1")(m, t)
				spoil(d.Change)
				return d
			})})
		if err == nil {
			t.Errorf("%s was written", name)
		}
		b.same(before)
	}
}

func testOneBadRow(t *testing.T, b *bench) {
	ids := b.queued(4)
	long := strings.Repeat("x", 300)
	check := func(out []taskstate.Outcome, err error) {
		t.Helper()
		b.fatalIf(err)
		equal(t, "outcomes", len(out), 4)
		for i, o := range out {
			if i == 2 {
				if o.Err == nil {
					t.Fatalf("the bad row was written: %+v", o)
				}
				equal(t, "bad row", b.get(ids[2]).Status, taskstate.StatusQueued)
				equal(t, "its log", len(b.log(ids[2])), 1)
				continue
			}
			b.fatalIf(o.Err)
			b.same(o.After)
		}
	}
	// A value that does not fit its column (where the dialect looks), else a hook that refuses one row.
	refuse := errors.New("not this one")
	check(b.s.Apply(b.ctx, taskstate.Batch{
		IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(b.claiming("p1")),
		OnTransition: func(_ context.Context, _ taskstate.Tx, _ taskstate.DBClock, changed []taskstate.Decision) error {
			for _, c := range changed {
				if c.TaskID == ids[2] {
					return refuse
				}
			}
			return nil
		},
	}))
	h := b.holder(b.get(ids[0]))
	b.apply(b.claiming("p1"), ids[2])
	out, err := b.s.Apply(b.ctx, taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(
		func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			d := taskstate.Succeed(m, t, h, nil, "")
			if t.ID == ids[2] {
				d.Change.ThrottleCount = -1 // against a CHECK of every dialect
				d.Change.Delivery = long
			}
			return d
		})})
	b.fatalIf(err)
	for i, o := range out {
		if (o.Err != nil) != (i == 2) {
			t.Fatalf("row %d: got error %v", i, o.Err)
		}
	}
	equal(t, "bad row", b.get(ids[2]).Status, taskstate.StatusRunning)
	equal(t, "good row", b.get(ids[3]).Status, taskstate.StatusSucceeded)
}

func testTexts(t *testing.T, b *bench) {
	for _, cause := range []string{
		strings.Repeat("长", 2000), strings.Repeat("😀", 2500), "it's \"quoted\" \\ and ? $1 :name %s",
		"a\x00b\xff\xfec", "\u2028 \r\n\t end", "", " spaces around ",
	} {
		task := b.claimed()
		o := b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Fail(b.p, m, t, b.holder(task), taskstate.Failure{Code: "X", Cause: cause, Message: cause})
		})
		got := o.After.LastError
		if n := utf8.RuneCountInString(got); n > taskstate.MaxErrorChars || !utf8.ValidString(got) {
			t.Fatalf("%d characters, valid %v", n, utf8.ValidString(got))
		}
		if utf8.ValidString(cause) && utf8.RuneCountInString(cause) <= taskstate.MaxErrorChars {
			equal(t, "last error", got, cause)
			equal(t, "message of the log", b.log(task.ID)[2].Message, cause)
		}
		equal(t, "the same for the user", o.After.ErrorMessage, got)
	}
	task := b.claimed()
	result := json.RawMessage(`{"text":"` + strings.Repeat("ü", 300_000) + `"}`)
	o := b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Succeed(m, t, b.holder(task), result, "")
	})
	equal(t, "result", len(o.After.Result), len(result))
}

func testWithClaim(t *testing.T, b *bench) {
	task := b.claimed()
	token := b.holder(task).Token
	b.fatalIf(taskstate.WithClaim(b.ctx, b.s, task.ID, token, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if m.Epoch != token.Epoch || m.Now.Before(task.UpdatedAt) {
			t.Errorf("moment %+v", m)
		}
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET chat_id = ? WHERE id = ?", "held", task.ID)
		return err
	}))
	equal(t, "written", b.get(task.ID).ChatID, "held")
	ran := false
	for _, bad := range []taskstate.Token{{Epoch: token.Epoch, Fence: token.Fence + 1}, {Epoch: 1, Fence: token.Fence}} {
		err := taskstate.WithClaim(b.ctx, b.s, task.ID, bad, func(context.Context, taskstate.Tx, taskstate.DBClock) error { ran = true; return nil })
		if !errors.Is(err, taskstate.ErrLost) || ran {
			t.Fatalf("got %v, ran %v, want ErrLost", err, ran)
		}
	}
}

func testInTx(t *testing.T, b *bench) {
	id, boom := b.queued(1)[0], errors.New("boom")
	write := func(value string, fail error) error {
		return b.s.InTx(b.ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET chat_id = ? WHERE id = ?", value, id)
			return errors.Join(err, fail)
		})
	}
	if err := write("no", boom); !errors.Is(err, boom) {
		t.Fatalf("got %v, want the hook's own error", err)
	}
	equal(t, "rolled back", b.get(id).ChatID, "")
	b.fatalIf(write("yes?", nil))
	equal(t, "committed", b.get(id).ChatID, "yes?")
	var got string
	b.fatalIf(b.s.Read(b.ctx, func(ctx context.Context, db taskstate.Tx) error {
		return db.QueryRowContext(ctx, "SELECT chat_id FROM ingest_task WHERE id = ? AND user_id = ?", id, "u1").Scan(&got)
	}))
	if err := b.s.Read(b.ctx, func(context.Context, taskstate.Tx) error { return boom }); err != boom { //nolint:errorlint // as it is
		t.Fatalf("got %v, want the hook's own error", err)
	}
	equal(t, "reader", got, "yes?")
	// A hook that swallows a failed statement must not be told that its transaction was committed when it was not.
	err := b.s.InTx(b.ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		if _, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET chat_id = ? WHERE id = ?", "third", id); err != nil {
			return err
		}
		_, _ = tx.ExecContext(ctx, "INSERT INTO timeline (id, value) VALUES (?, ?)", 1, 5)
		return nil
	})
	equal(t, "what was said is what was done", err == nil, b.get(id).ChatID == "third")
	func() {
		defer func() { _ = recover() }()
		_ = b.s.InTx(b.ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) error { panic("a hook's bug") })
	}()
	b.fatalIf(write("after a panic", nil))
}
