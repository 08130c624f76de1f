package taskstatetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

func testSubmit(t *testing.T, b *bench) {
	full := newTask()
	full.DocumentID, full.KnowledgeBase, full.FilePath = newID(), newID(), "ab/größe 📄.pdf"
	full.WorkflowID, full.ChatID, full.TraceParent = "flow", "chat-1", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	full.RequestID = "req-1.Ab_c"
	full.Payload = json.RawMessage(`{"text":"日本語 \"quoted\" \\ back \u0041 😀"}`)
	full.IdempotencyKey, full.RequestHash = "http:flow:chat-1:1", strings.Repeat("ab", 32)
	plain := newTask()
	out := b.submit(plain, full)
	equal(t, "tasks", len(out), 2)
	equal(t, "order", out[0].ID+out[1].ID, plain.ID+full.ID)
	for i, n := range []taskstate.NewTask{plain, full} {
		got := out[i]
		b.same(got)
		want := n.Task
		want.Status, want.Progress.Stage, want.DLQ = taskstate.StatusQueued, taskstate.StageNone, taskstate.DLQNone
		want.CreatedAt, want.UpdatedAt, want.WakeAt, want.EnqueuedAt = got.CreatedAt, got.CreatedAt, got.CreatedAt, got.CreatedAt
		equal(t, "payload", string(got.Payload), string(want.Payload))
		got.Payload, want.Payload = nil, nil
		if jsonOf(t, got) != jsonOf(t, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		log := b.log(n.ID)
		equal(t, "log", len(log), 1)
		equal(t, "from", log[0].From, taskstate.StatusNone)
		equal(t, "to", log[0].To, taskstate.StatusQueued)
		equal(t, "reason", log[0].Reason, taskstate.ReasonAccepted)
		equal(t, "actor", log[0].Actor, "user:u1")
		equal(t, "time of the log", log[0].CreatedAt, got.UpdatedAt)
	}
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	if m.Epoch <= 0 || b.log(full.ID)[0].Epoch != m.Epoch {
		t.Fatalf("timeline %d, in the log %d", m.Epoch, b.log(full.ID)[0].Epoch)
	}
	if d := m.Now.Sub(out[0].CreatedAt); d < 0 || d > time.Minute {
		t.Fatalf("created %s before now", d)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func testSubmitInvalid(t *testing.T, b *bench) {
	for name, spoil := range map[string]func(n *taskstate.NewTask){
		"id":              func(n *taskstate.NewTask) { n.ID = "" },
		"user":            func(n *taskstate.NewTask) { n.UserID = "" },
		"type":            func(n *taskstate.NewTask) { n.Type = "" },
		"chat":            func(n *taskstate.NewTask) { n.ChatID = strings.Repeat("x", 191) },
		"file path":       func(n *taskstate.NewTask) { n.FilePath = "a\x00b" },
		"workflow":        func(n *taskstate.NewTask) { n.WorkflowID = "a\xffb" },
		"idempotency key": func(n *taskstate.NewTask) { n.IdempotencyKey = "key " },
		"max attempts":    func(n *taskstate.NewTask) { n.MaxAttempts = 0 },
		"payload":         func(n *taskstate.NewTask) { n.Payload = json.RawMessage(`"` + strings.Repeat("x", 256<<10) + `"`) },
	} {
		good, bad := newTask(), newTask()
		spoil(&bad)
		_, err := b.s.Submit(b.ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
			return []taskstate.NewTask{good, bad}, nil
		})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v, want one that names the field", name, err)
		}
		if _, err := b.s.Get(b.ctx, taskstate.System(), good.ID); !errors.Is(err, taskstate.ErrNotFound) {
			t.Errorf("%s: the other task of the call: got %v, want ErrNotFound", name, err)
		}
	}
}

func testDuplicateKey(t *testing.T, b *bench) {
	first, again, other, second := newTask(), newTask(), newTask(), newTask()
	first.IdempotencyKey, again.IdempotencyKey, other.IdempotencyKey = "k", "k", "k"
	other.UserID = "u2"
	second.IdempotencyKey = "K" // keys differ by case
	b.submit(first)
	_, err := b.s.Submit(b.ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{newTask(), again}, nil
	})
	if !errors.Is(err, taskstate.ErrDuplicateKey) {
		t.Fatalf("got %v, want ErrDuplicateKey", err)
	}
	b.submit(other, second, newTask(), newTask()) // another user, another key, no key twice
	n, err := b.s.Counts(b.ctx, taskstate.System(), "")
	b.fatalIf(err)
	equal(t, "tasks", n[taskstate.StatusQueued], 5)
}

func testPrepare(t *testing.T, b *bench) {
	boom := errors.New("boom")
	id := b.queued(1)[0]
	_, err := b.s.Submit(b.ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
		if m.Epoch == 0 || m.Now.IsZero() {
			t.Error("prepare got no moment")
		}
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET chat_id = ? WHERE id = ?", "changed", id)
		return nil, errors.Join(err, boom)
	})
	if !errors.Is(err, boom) {
		t.Fatalf("got %v, want the hook's own error", err)
	}
	equal(t, "chat id", b.get(id).ChatID, "")
	out, err := b.s.Submit(b.ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) ([]taskstate.NewTask, error) {
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET chat_id = ? WHERE id = ?", "changed", id)
		return nil, err
	})
	b.fatalIf(err)
	equal(t, "tasks", len(out), 0)
	equal(t, "chat id", b.get(id).ChatID, "changed")
}

func testClaim(t *testing.T, b *bench) {
	id := b.queued(1)[0]
	o := b.one(id, b.claiming("p1"))
	equal(t, "answer", o.Answer, taskstate.AnswerClaimed)
	equal(t, "fence", o.After.Fence, 1)
	equal(t, "owner", o.After.LeaseOwner, "p1/1")
	equal(t, "delivery", o.After.Delivery, "1-0")
	if left := o.After.LeaseExpiresAt().Sub(o.After.UpdatedAt); left > b.p.Lease || left < b.p.Lease/3 {
		t.Fatalf("%s are left of the process's lease of %s", left, b.p.Lease)
	}
	equal(t, "wake", o.After.WakeAt, o.After.LeaseExpiresAt())
	equal(t, "before", o.Before.Status, taskstate.StatusQueued)
	equal(t, "answer", b.one(id, b.claiming("p2")).Answer, taskstate.AnswerBusy)
	log := b.log(id)
	equal(t, "log", len(log), 2)
	last := log[1]
	equal(t, "fence of the log", last.Fence, 1)
	equal(t, "lease of the log", last.LeaseExpiresAt, o.After.LeaseExpiresAt())
	equal(t, "time of the log", last.CreatedAt, o.After.UpdatedAt)
	equal(t, "delivery of the log", last.Delivery, "1-0")
	done := b.one(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Succeed(m, t, b.holder(t), json.RawMessage(`{"n":1}`), "fine")
	})
	equal(t, "result", string(done.After.Result), `{"n":1}`)
	equal(t, "answer", b.one(id, b.claiming("p2")).Answer, taskstate.AnswerSkipped)
	gone := b.apply(b.claiming("p2"), newID(), "no such id: ' \x00", strings.Repeat("9", 400))
	for _, o := range gone {
		equal(t, "unknown id", o.Answer, taskstate.AnswerSkipped)
	}
}

func testMixed(t *testing.T, b *bench) {
	ids := b.queued(6)
	for _, o := range b.apply(b.claiming("p1"), ids...) {
		equal(t, "answer", o.Answer, taskstate.AnswerClaimed)
	}
	h := taskstate.Holder{Token: b.holder(b.get(ids[0])).Token, Actor: worker}
	ids = append(ids, newID())
	out := b.apply(func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		switch task.ID {
		case ids[0]:
			return taskstate.Succeed(m, task, h, nil, "")
		case ids[1]:
			return taskstate.Fail(b.p, m, task, h, taskstate.Failure{Code: "X", Cause: "it broke", Message: "broken"})
		case ids[2]:
			return taskstate.Fail(b.p, m, task, h, taskstate.Failure{Code: "Y", Cause: "hopeless", Permanent: true})
		case ids[3]:
			return taskstate.Fail(b.p, m, task, h, taskstate.Failure{Code: "Z", Cause: "429", Throttled: true, RetryAfter: 90 * time.Second})
		case ids[4]:
			return taskstate.HandBack(m, task, h, "stop")
		}
		stale := h
		stale.Token.Fence--
		return taskstate.Succeed(m, task, stale, nil, "")
	}, ids...)
	want := []taskstate.Status{
		taskstate.StatusSucceeded, taskstate.StatusRetrying, taskstate.StatusDead,
		taskstate.StatusRetrying, taskstate.StatusQueued, taskstate.StatusRunning, taskstate.StatusNone,
	}
	for i, o := range out {
		b.fatalIf(o.Err)
		equal(t, "status", o.After.Status, want[i])
		if i < 6 {
			b.same(o.After)
		}
	}
	equal(t, "answer", out[5].Answer, taskstate.AnswerLost)
	equal(t, "answer", out[6].Answer, taskstate.AnswerSkipped)
	equal(t, "throttle", out[3].After.NextRetryAt.Sub(out[3].After.UpdatedAt), 90*time.Second)
	equal(t, "attempts of a throttle", out[3].After.AttemptCount, 0)
	equal(t, "last error", out[1].After.LastError, "it broke")
	equal(t, "debt", out[2].After.DLQ, taskstate.DLQOwed)
	b.apply(func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return taskstate.Retry(m, task, taskstate.Actor{Kind: taskstate.ActorUser, Name: "u1"})
	}, ids[1:4]...)
	for i, codes := range [][]string{{"", "", ""}, {"", "", "X", "X"}, {"", "", "Y", ""}, {"", "", "Z", "Z"}, {"", "", ""}} {
		for n, tr := range b.log(ids[i]) {
			equal(t, "code of the log after "+string(tr.Reason), tr.ErrorCode, codes[n])
		}
	}
}

func testLarge(t *testing.T, b *bench) {
	ids := b.queued(1203)
	won := 0
	for _, o := range b.apply(b.claiming("p1"), ids...) {
		b.fatalIf(o.Err)
		if o.Answer == taskstate.AnswerClaimed {
			won++
		}
	}
	equal(t, "claimed", won, len(ids))
	beats := make([]taskstate.Beat, len(ids))
	h := b.holder(b.get(ids[0]))
	for i, id := range ids {
		beats[i] = taskstate.Beat{TaskID: id, Status: taskstate.StatusRunning, Token: h.Token, Owner: "p1/1", Renew: true}
	}
	lost, err := b.s.Heartbeat(b.ctx, b.p.Lease, beats)
	b.fatalIf(err)
	equal(t, "lost", len(lost), 0)
	many, err := b.s.GetMany(b.ctx, taskstate.System(), ids)
	b.fatalIf(err)
	equal(t, "read", len(many), len(ids))
	after := map[string]int64{}
	for _, id := range ids {
		after[id] = 0
	}
	logs, err := b.s.TransitionsOf(b.ctx, after, 5000)
	b.fatalIf(err)
	equal(t, "log rows", len(logs), 2*len(ids))
	if _, err := b.s.Apply(b.ctx, taskstate.Batch{
		IDs: []string{ids[0], ids[0]}, Scope: taskstate.System(), Decide: taskstate.Each(b.claiming("p1")),
	}); err == nil {
		t.Fatal("an id that stands twice was accepted")
	}
	out, err := b.s.Apply(b.ctx, taskstate.Batch{Scope: taskstate.System(), Decide: taskstate.Each(b.claiming("p1"))})
	b.fatalIf(err)
	equal(t, "outcomes of an empty batch", len(out), 0)
}

func testExact(t *testing.T, b *bench) {
	task := newTask()
	task.MaxAttempts = 12
	b.submit(task)
	for attempt := 1; attempt <= 8; attempt++ {
		now := b.one(task.ID, b.claiming("p1")).After
		o := b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Fail(b.p, m, t, b.holder(now), taskstate.Failure{Cause: "again"})
		})
		log := b.log(task.ID)
		last := log[len(log)-1]
		equal(t, "attempts", last.AttemptCount, attempt)
		equal(t, "backoff in the log", last.NextRetryAt.Sub(last.CreatedAt), b.p.Backoff(attempt))
		equal(t, "backoff in the row", o.After.NextRetryAt.Sub(o.After.UpdatedAt), b.p.Backoff(attempt))
		equal(t, "due is wake", o.After.WakeAt, o.After.NextRetryAt)
		equal(t, "not due", b.one(task.ID, b.claiming("p1")).Answer, taskstate.AnswerNotDue)
		o = b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.Retry(m, t, worker) })
		equal(t, "due now", o.After.NextRetryAt, o.After.UpdatedAt)
	}
}

func testStale(t *testing.T, b *bench) {
	first := b.claimed()
	old := b.holder(first)
	b.expire(first.ID)
	second := b.one(first.ID, b.claiming("p2")).After
	equal(t, "fence", second.Fence, first.Fence+1)
	for _, h := range []taskstate.Holder{old, {Token: taskstate.Token{Epoch: old.Token.Epoch + 1, Fence: second.Fence}}} {
		for name, f := range map[string]func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision{
			"succeed": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Succeed(m, t, h, nil, "")
			},
			"fail": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Fail(b.p, m, t, h, taskstate.Failure{})
			},
			"hand back": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.HandBack(m, t, h, "") },
		} {
			o := b.one(first.ID, f)
			equal(t, name, o.Answer, taskstate.AnswerLost)
			b.same(second)
		}
		lost, err := b.s.Heartbeat(b.ctx, b.p.Lease, []taskstate.Beat{
			{TaskID: first.ID, Status: taskstate.StatusRunning, Token: h.Token, Owner: second.LeaseOwner, Renew: true},
		})
		b.fatalIf(err)
		equal(t, "lost beats", len(lost), 1)
		err = taskstate.WithClaim(b.ctx, b.s, first.ID, h.Token, func(context.Context, taskstate.Tx, taskstate.DBClock) error { return nil })
		if !errors.Is(err, taskstate.ErrLost) {
			t.Fatalf("hold: got %v, want ErrLost", err)
		}
		b.same(second)
	}
}
