package taskstatetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// decideFunc is a pure decision.
type decideFunc = func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision

func testHandBack(t *testing.T, b *bench) {
	ids := b.queued(3)
	b.apply(b.claiming("p1"), ids...)
	h := b.holder(b.get(ids[0]))
	for _, o := range b.apply(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.HandBack(m, t, h, "stop")
	}, ids...) {
		b.fatalIf(o.Err)
		equal(t, "status", o.After.Status, taskstate.StatusQueued)
		equal(t, "attempts", o.After.AttemptCount, 0)
		equal(t, "owner", o.After.LeaseOwner, "")
		equal(t, "lease", o.After.LeaseExpiresAt().IsZero(), true)
		equal(t, "promised", o.After.EnqueuedAt, o.After.UpdatedAt)
		equal(t, "wake", o.After.WakeAt, o.After.UpdatedAt)
		b.same(o.After)
	}
}

func testTakeover(t *testing.T, b *bench) {
	task := b.claimed()
	equal(t, "live", b.one(task.ID, b.claiming("p2")).Answer, taskstate.AnswerBusy)
	b.expire(task.ID)
	noTakeover := func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Claim(b.p, m, t, taskstate.ClaimRequest{Owner: "p2/1", Process: "p2", Actor: worker})
	}
	equal(t, "a delivery never takes over", b.one(task.ID, noTakeover).Answer, taskstate.AnswerBusy)
	o := b.one(task.ID, b.claiming("p2"))
	equal(t, "answer", o.Answer, taskstate.AnswerClaimed)
	equal(t, "trace of the attempt", o.After.AttemptTrace, claimTrace)
	equal(t, "crashes", o.After.CrashCount, 1)
	equal(t, "attempts", o.After.AttemptCount, 0)
	last := b.log(task.ID)[2]
	equal(t, "from", last.From, taskstate.StatusRunning)
	equal(t, "reason", last.Reason, taskstate.ReasonTakeover)
	equal(t, "message", last.Message, "lease expired")
	equal(t, "crashes in the log", last.CrashCount, 1)
}

func testCrashLimit(t *testing.T, b *bench) {
	task := b.claimed()
	b.set(task.ID, "crash_count = 2")
	b.expire(task.ID)
	o := b.one(task.ID, b.claiming("p2"))
	equal(t, "answer", o.Answer, taskstate.AnswerDead)
	equal(t, "status", o.After.Status, taskstate.StatusDead)
	equal(t, "debt", o.After.DLQ, taskstate.DLQOwed)
	equal(t, "reason", b.log(task.ID)[2].Reason, taskstate.ReasonCrashLimit)
}

func testReserve(t *testing.T, b *bench) {
	task := b.claimed()
	b.set(task.ID, "crash_count = 1")
	b.expire(task.ID)
	ask := func(process string, alone, reserve bool) decideFunc {
		return func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Claim(b.p, m, t, taskstate.ClaimRequest{
				Owner: process + "/1", Process: process, Actor: worker, Takeover: true, Alone: alone, Reserve: reserve, Mine: alone,
			})
		}
	}
	equal(t, "among others", b.one(task.ID, ask("p2", false, false)).Answer, taskstate.AnswerIsolated)
	log := len(b.log(task.ID))
	o := b.one(task.ID, ask("p2", false, true))
	equal(t, "reserve", o.Answer, taskstate.AnswerReserved)
	equal(t, "fence", o.After.Fence, task.Fence)
	equal(t, "reserver", o.After.LeaseOwner, "p2/1")
	equal(t, "log", len(b.log(task.ID)), log)
	equal(t, "another process", b.one(task.ID, ask("p3", true, false)).Answer, taskstate.AnswerBusy)
	lost, err := b.s.Heartbeat(b.ctx, b.p.Lease, []taskstate.Beat{
		{TaskID: task.ID, Status: taskstate.StatusRunning, Token: b.holder(task).Token, Owner: task.LeaseOwner, Renew: true},
	})
	b.fatalIf(err)
	equal(t, "the old holder's beat", len(lost), 1)
	release := func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Release(b.p, m, t, "p2/1")
	}
	equal(t, "release", b.one(task.ID, release).Answer, taskstate.AnswerApplied)
	equal(t, "release twice", b.one(task.ID, release).Answer, taskstate.AnswerKept)
	b.expire(task.ID)
	b.one(task.ID, ask("p2", false, true))
	o = b.one(task.ID, ask("p2", true, false))
	equal(t, "alone", o.Answer, taskstate.AnswerClaimed)
	equal(t, "crashes", o.After.CrashCount, 2)

	// A reserved row that is not running keeps its status, and others leave it alone.
	id := b.queued(1)[0]
	b.set(id, "crash_count = 2")
	equal(t, "reserve queued", b.one(id, ask("p2", false, true)).Answer, taskstate.AnswerReserved)
	equal(t, "status", b.get(id).Status, taskstate.StatusQueued)
	equal(t, "others", b.one(id, ask("p3", true, true)).Answer, taskstate.AnswerBusy)
	o = b.one(id, release)
	if d := o.After.WakeAt.Sub(o.Before.EnqueuedAt); d < 0 || d > time.Minute { // the statement is a little later than the decision
		t.Fatalf("it wakes %s later than before its reservation", d)
	}
}

func testThrottle(t *testing.T, b *bench) {
	id := b.queued(1)[0]
	for n, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		now := b.one(id, b.claiming("p1")).After
		o := b.one(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Fail(b.p, m, t, b.holder(now), taskstate.Failure{Throttled: true, Cause: "429"})
		})
		equal(t, fmt.Sprintf("wait %d", n), o.After.NextRetryAt.Sub(o.After.UpdatedAt), time.Duration(seconds)*time.Second)
		equal(t, "attempts", o.After.AttemptCount, 0)
		equal(t, "throttles", o.After.ThrottleCount, n+1)
		b.one(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.Retry(m, t, worker) })
	}
}

// dead makes a DEAD task with a debt and returns its last claim's authority too.
func (b *bench) dead() (taskstate.Task, taskstate.Holder) {
	b.t.Helper()
	task := b.claimed()
	h := b.holder(task)
	o := b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Fail(b.p, m, t, h, taskstate.Failure{Code: "CORRUPT", Cause: "unreadable", Permanent: true})
	})
	equal(b.t, "status", o.After.Status, taskstate.StatusDead)
	return o.After, h
}

func testDLQ(t *testing.T, b *bench) {
	dead, h := b.dead()
	equal(t, "wake", dead.WakeAt.Sub(dead.UpdatedAt), 10*time.Second)
	mark := func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.MarkDLQ(m, t, h.Token)
	}
	log := len(b.log(dead.ID))
	o := b.one(dead.ID, mark)
	equal(t, "mark", o.After.DLQ, taskstate.DLQWritten)
	equal(t, "never again", o.After.WakeAt.IsZero(), true)
	equal(t, "log", len(b.log(dead.ID)), log)
	equal(t, "mark twice", b.one(dead.ID, mark).Answer, taskstate.AnswerKept)

	dead, h = b.dead()
	o = b.one(dead.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Replay(m, t, worker, "again")
	})
	equal(t, "replay cancels the debt", o.After.DLQ, taskstate.DLQNone)
	equal(t, "status", o.After.Status, taskstate.StatusQueued)
	equal(t, "attempts", o.After.AttemptCount, 0)
	equal(t, "late mark", b.one(dead.ID, mark).Answer, taskstate.AnswerKept)
	equal(t, "fence goes on", b.one(dead.ID, b.claiming("p1")).After.Fence, dead.Fence+1)
}

func testEnqueue(t *testing.T, b *bench) {
	ids := b.queued(3)
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	watermark := m.Now.Add(-time.Hour)
	enqueue := taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Enqueue(b.p, m, t, watermark)
	})
	sweep := taskstate.Sweep{Status: taskstate.StatusQueued, Before: watermark.Add(-b.p.Slack), Limit: 10, Decide: enqueue}
	out, err := b.s.Sweep(b.ctx, sweep)
	b.fatalIf(err)
	equal(t, "a healthy backlog", len(out), 0)
	old := m.Now.Add(-2 * time.Hour)
	for _, id := range ids[:2] {
		b.set(id, "wake_at = ?, promised_at = ?", old, old)
	}
	for n := 1; n <= 3; n++ {
		out, err = b.s.Sweep(b.ctx, sweep)
		b.fatalIf(err)
		equal(t, "lost rows", len(out), 2)
		for _, o := range out {
			b.fatalIf(o.Err)
			b.same(o.After)
			equal(t, "promises", o.After.EnqueueCount, n)
			equal(t, "promised", o.After.EnqueuedAt, o.After.UpdatedAt)
			equal(t, "next look", o.After.WakeAt.Sub(o.After.EnqueuedAt), b.p.Slack*time.Duration(1<<n-1))
			equal(t, "log", len(b.log(o.TaskID)), 1)
			b.set(o.TaskID, "wake_at = ?", old)
		}
	}
	equal(t, "a claim forgets", b.one(ids[0], b.claiming("p1")).After.EnqueueCount, 0)
}

func testScope(t *testing.T, b *bench) {
	mine, theirs := newTask(), newTask()
	theirs.UserID = "u2"
	b.submit(mine, theirs)
	u1 := taskstate.Scope{UserID: "u1", Role: taskstate.RoleUser}
	cancel := func(s taskstate.Scope) taskstate.DecideFunc {
		return taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(m, t, s.Actor(), taskstate.ReasonCancelled, "not wanted")
		})
	}
	for _, nobody := range []taskstate.Scope{{}, {Role: taskstate.RoleUser}, {UserID: "U1", Role: taskstate.RoleUser}, {UserID: "u1 ", Role: "x"}} {
		if nobody.UserID == "u1 " {
			continue // a trailing space never reaches the store: Submit refuses such users
		}
		out, err := b.s.Apply(b.ctx, taskstate.Batch{IDs: []string{mine.ID, theirs.ID}, Scope: nobody, Decide: cancel(nobody)})
		b.fatalIf(err)
		equal(t, "foreign", out[0].Answer, taskstate.AnswerSkipped)
		equal(t, "before of a foreign row", out[0].Before.ID, "")
	}
	out, err := b.s.Apply(b.ctx, taskstate.Batch{IDs: []string{theirs.ID, mine.ID}, Scope: u1, Decide: cancel(u1)})
	b.fatalIf(err)
	equal(t, "theirs", out[0].Answer, taskstate.AnswerSkipped)
	equal(t, "mine", out[1].After.Status, taskstate.StatusCancelled)
	equal(t, "actor", b.log(mine.ID)[1].Actor, "user:u1")
	equal(t, "untouched", b.get(theirs.ID).Status, taskstate.StatusQueued)
	if _, err := b.s.Get(b.ctx, u1, theirs.ID); !errors.Is(err, taskstate.ErrNotFound) {
		t.Fatalf("get: got %v, want ErrNotFound", err)
	}
	if _, err := b.s.Transitions(b.ctx, u1, theirs.ID, 0, 10); !errors.Is(err, taskstate.ErrNotFound) {
		t.Fatalf("log: got %v, want ErrNotFound", err)
	}
	many, err := b.s.GetMany(b.ctx, u1, []string{mine.ID, theirs.ID})
	b.fatalIf(err)
	equal(t, "get many", len(many), 1)
	list, err := b.s.List(b.ctx, u1, taskstate.Query{Limit: 10})
	b.fatalIf(err)
	equal(t, "list", len(list.Tasks), 1)
	counts, err := b.s.Counts(b.ctx, u1, "")
	b.fatalIf(err)
	equal(t, "counts", fmt.Sprint(counts), "map[CANCELLED:1]")

	refused := b.one(mine.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, t, worker, taskstate.ReasonCancelled, "")
	})
	var why *taskstate.RefusedError
	if refused.Answer != taskstate.AnswerRefused || !errors.As(refused.Decision.Err, &why) || why.Status != taskstate.StatusCancelled {
		t.Fatalf("got %+v, want a refusal that names the state", refused.Decision)
	}
	suspended := b.one(theirs.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Suspend(m, t, worker, "look at it")
	})
	equal(t, "suspended", suspended.After.Status, taskstate.StatusSuspended)
	resumed := b.one(theirs.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Resume(m, t, worker, "")
	})
	equal(t, "resumed", resumed.After.Status, taskstate.StatusQueued)
}

// testClockSetBack has a process renew its lease after the database's clock was set back by an hour: its lease is one from then on, so
// that its tasks are taken over when it dies, not an hour later.
func testClockSetBack(t *testing.T, b *bench) {
	task, other := b.claimed(), b.queued(1)[0]
	b.fatalIf(b.s.Renew(b.ctx, "p1", time.Hour+b.p.Lease, 8)) // as an ordinary renewal an hour later
	b.one(other, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Claim(b.p, m, t, taskstate.ClaimRequest{Owner: "p1/2", Process: "p1", Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "p1"}})
	})
	b.fatalIf(b.s.Renew(b.ctx, "p1", b.p.Lease, 8))
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	equal(t, "the lease is one from now on", b.get(task.ID).LeaseExpiresAt().After(m.Now.Add(b.p.Lease)), false)
	equal(t, "it has not ended", b.get(other).LeaseExpiresAt().After(m.Now), true)
	b.write("UPDATE ingest_worker SET lease_until = created_at WHERE name = 'p1'") // p1 dies, and its lease has ended
	outs, err := b.s.Sweep(b.ctx, taskstate.Sweep{
		Status: taskstate.StatusRunning, WakeBefore: taskstate.In(b.p.Lease), Limit: 10, Decide: taskstate.Each(b.claiming("p2")),
	})
	b.fatalIf(err)
	equal(t, "both are found", len(outs), 2)
}

func testHeartbeat(t *testing.T, b *bench) {
	task, other := b.claimed(), b.claimed()
	h := b.holder(task)
	beat := taskstate.Beat{TaskID: task.ID, Status: taskstate.StatusRunning, Token: h.Token, Owner: task.LeaseOwner}
	send := func(lease time.Duration, beats ...taskstate.Beat) []string {
		t.Helper()
		lost, err := b.s.Heartbeat(b.ctx, lease, beats)
		b.fatalIf(err)
		return lost
	}
	equal(t, "nothing to do", len(send(time.Hour, beat)), 0)
	b.same(task)
	b.fatalIf(b.s.Renew(b.ctx, "p1", time.Hour, 8))
	now := b.get(task.ID)
	equal(t, "wake", now.WakeAt, now.LeaseExpiresAt())
	equal(t, "updated", now.UpdatedAt, task.UpdatedAt)
	equal(t, "lease of its other claims", b.get(other.ID).WakeAt, now.WakeAt)
	if d := now.LeaseExpiresAt().Sub(task.LeaseExpiresAt()); d < 50*time.Minute {
		t.Fatalf("the lease grew by %s only", d)
	}
	b.fatalIf(b.s.Renew(b.ctx, "p1", 50*time.Minute, 8))
	equal(t, "no late renewal shortens it", b.get(task.ID).WakeAt, now.WakeAt)
	beat.Progress = &taskstate.Progress{Stage: "embed", Percent: 40, Processed: 4, Total: 10}
	equal(t, "progress", len(send(time.Hour, beat)), 0)
	moved := b.get(task.ID)
	equal(t, "progress", moved.Progress, *beat.Progress)
	equal(t, "lease", moved.LeaseExpiresAt(), now.LeaseExpiresAt())
	if !moved.UpdatedAt.After(task.UpdatedAt) {
		t.Fatal("progress did not move updated_at")
	}
	send(time.Hour, beat)
	equal(t, "the same progress again", b.get(task.ID).UpdatedAt, moved.UpdatedAt)

	beat.Progress = nil
	b.write("UPDATE ingest_worker SET lease_until = created_at WHERE name = 'p1'")
	equal(t, "its lease has ended", b.get(task.ID).WakeAt.Before(moved.UpdatedAt), true)
	b.fatalIf(b.s.Renew(b.ctx, "p1", b.p.Lease, 8))
	equal(t, "nobody can take it", b.one(task.ID, b.claiming("p2")).Answer, taskstate.AnswerBusy)

	b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, t, worker, taskstate.ReasonCancelled, "")
	})
	gone := beat
	gone.TaskID = newID()
	wrong := taskstate.Beat{TaskID: other.ID, Status: taskstate.StatusRunning, Token: h.Token, Owner: "p9/1", Renew: true}
	lost := send(b.p.Lease, beat, gone, wrong)
	equal(t, "lost", len(lost), 3)
	wrong.Owner = other.LeaseOwner
	lost = send(b.p.Lease, beat, wrong)
	equal(t, "lost", fmt.Sprint(lost), fmt.Sprint([]string{task.ID}))
	equal(t, "none", len(send(b.p.Lease)), 0)
}
