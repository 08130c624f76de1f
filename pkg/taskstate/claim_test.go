package taskstate

import (
	"strings"
	"testing"
	"time"
)

func TestClaimTable(t *testing.T) {
	t.Parallel()
	expired := func(crashes int) Task {
		r := row(StatusRunning)
		r.WakeAt, r.CrashCount = now, crashes // "at" counts as expired
		return r
	}
	reserved := func(s Status, until time.Duration) Task {
		r := row(s)
		r.LeaseOwner, r.WakeAt, r.CrashCount = "p9/1", now.Add(until), 2
		return r
	}
	notDue := row(StatusRetrying)
	notDue.NextRetryAt = now.Add(time.Microsecond)
	dueNow := row(StatusRetrying)
	dueNow.NextRetryAt = now
	last := row(StatusQueued)
	last.CrashCount = 2
	with := func(change func(r *ClaimRequest)) ClaimRequest {
		r := request("p2")
		change(&r)
		return r
	}
	for name, tt := range map[string]struct {
		task Task
		r    ClaimRequest
		want Answer
	}{
		"not due by a microsecond":      {notDue, request("p2"), AnswerNotDue},
		"due at this very moment":       {dueNow, request("p2"), AnswerClaimed},
		"live lease":                    {row(StatusRunning), request("p2"), AnswerBusy},
		"expired, by a delivery":        {expired(0), with(func(r *ClaimRequest) { r.Takeover = false }), AnswerBusy},
		"expired, by the recovery loop": {expired(0), request("p2"), AnswerClaimed},
		"expired, last chance":          {expired(1), request("p2"), AnswerIsolated},
		"expired, last chance, alone":   {expired(1), with(func(r *ClaimRequest) { r.Alone = true }), AnswerClaimed},
		"expired, last chance, reserve": {expired(1), with(func(r *ClaimRequest) { r.Reserve = true }), AnswerReserved},
		"expired, crash limit":          {expired(2), request("p2"), AnswerDead},
		"expired, over the limit":       {expired(9), with(func(r *ClaimRequest) { r.Alone = true }), AnswerDead},
		"queued last chance":            {last, request("p2"), AnswerIsolated},
		"queued last chance, alone":     {last, with(func(r *ClaimRequest) { r.Alone = true }), AnswerClaimed},
		"reserved by another":           {reserved(StatusQueued, time.Second), with(func(r *ClaimRequest) { r.Alone = true }), AnswerBusy},
		"reserved retry by another":     {reserved(StatusRetrying, time.Second), with(func(r *ClaimRequest) { r.Alone = true }), AnswerBusy},
		"reservation ran out":           {reserved(StatusQueued, 0), with(func(r *ClaimRequest) { r.Alone = true }), AnswerClaimed},
		"own reservation, alone":        {reserved(StatusQueued, time.Second), with(func(r *ClaimRequest) { r.Process, r.Alone = "p9", true }), AnswerClaimed},
		"own reservation, not alone":    {reserved(StatusQueued, time.Second), with(func(r *ClaimRequest) { r.Process = "p9" }), AnswerIsolated},
		"own running reservation": {func() Task {
			r := row(StatusRunning)
			r.LeaseOwner, r.CrashCount = "p2/5", 1
			return r
		}(), with(func(r *ClaimRequest) { r.Mine, r.Alone, r.Takeover = true, true, false }), AnswerClaimed},
		"expired, its own run goes on": {expired(0), with(func(r *ClaimRequest) { r.Held = true }), AnswerBusy},
		"the same at the crash limit":  {expired(2), with(func(r *ClaimRequest) { r.Held, r.Alone = true, true }), AnswerBusy},
		"queued, whatever was held":    {row(StatusQueued), with(func(r *ClaimRequest) { r.Held = true }), AnswerClaimed},
		"mine, but another's":          {row(StatusRunning), with(func(r *ClaimRequest) { r.Mine, r.Alone = true, true }), AnswerBusy},
	} {
		d := Claim(rules, moment, tt.task, tt.r)
		if d.Answer != tt.want {
			t.Errorf("%s: got %s, want %s", name, d.Answer, tt.want)
		}
		if c := d.Change; c != nil && !c.Silent {
			checkChange(t, name, tt.task, c)
		}
	}
	c := Claim(rules, moment, expired(2), request("p2")).Change
	if c.To != StatusDead || c.CrashCount != 3 || c.Reason != ReasonCrashLimit || c.ErrorCode != "CRASH_LIMIT" ||
		c.DLQ != DLQOwed || c.Wake != In(10*time.Second) || !strings.Contains(c.LastError, "3 times") {
		t.Errorf("crash limit: got %+v", c)
	}
	about := request("p2")
	about.Noun = "document"
	for _, words := range []string{c.ErrorMessage, Claim(rules, moment, expired(2), about).Change.ErrorMessage} {
		noun := map[bool]string{true: "task", false: "document"}[words == c.ErrorMessage]
		if words != "This "+noun+" stopped its worker again and again; it was set aside." {
			t.Errorf("crash limit of a %s: got %q", noun, words)
		}
	}
	c = Claim(rules, moment, expired(0), request("p2")).Change
	if c.CrashCount != 1 || c.AttemptCount != 0 || c.Message != "lease expired" || c.Delivery != "d" || c.Wake != Lease(rules.Lease) {
		t.Errorf("takeover: got %+v", c)
	}
	quiet := request("p2")
	quiet.Delivery = ""
	kept := row(StatusQueued)
	kept.Delivery = "old"
	if c := Claim(rules, moment, kept, quiet).Change; c.Delivery != "old" {
		t.Errorf("the recovery loop changed the delivery to %q", c.Delivery)
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	for s, wake := range map[Status]Delay{
		StatusQueued:   In(-time.Hour + 6*time.Second), // promised an hour ago, for the second time
		StatusRetrying: In(-time.Second),
		StatusRunning:  In(0),
	} {
		r := row(s)
		r.LeaseOwner, r.WakeAt, r.EnqueueCount = "p2/1", now.Add(time.Minute), 2
		if d := Release(rules, moment, r, "p2/2"); d.Answer != AnswerKept {
			t.Errorf("%s: another call's reservation was dropped", s)
		}
		d := Release(rules, moment, r, "p2/1")
		if d.Answer != AnswerApplied || d.Change.Wake != wake || d.Change.LeaseOwner != "" || !d.Change.Silent {
			t.Errorf("%s: got %s %+v, want wake %+v", s, d.Answer, d.Change, wake)
		}
	}
	for _, s := range []Status{StatusSucceeded, StatusDead, StatusSuspended, StatusCancelled, StatusNone} {
		r := row(s)
		r.LeaseOwner = "p2/1"
		if d := Release(rules, moment, r, "p2/1"); d.Answer != AnswerKept || d.Change != nil {
			t.Errorf("%s: got %+v", s, d)
		}
	}
	if got := ownerProcess("whole"); got != "whole" {
		t.Errorf("owner without a call: got %q", got)
	}
}

func TestEnqueues(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{
		-1: 0, 0: 0, 1: 2 * time.Second, 2: 6 * time.Second, 3: 14 * time.Second, 8: 5 * time.Minute, 62: 5 * time.Minute, 1 << 30: 5 * time.Minute,
	} {
		if got := enqueueDelay(n, 2*time.Second); got != want {
			t.Errorf("promise %d: got %s, want %s", n, got, want)
		}
	}
	r := row(StatusQueued)
	r.WakeAt = now.Add(-2 * time.Second)
	if d := Enqueue(rules, moment, r, now); d.Answer != AnswerKept {
		t.Errorf("a wake time at the horizon less the slack: got %s", d.Answer)
	}
	r.WakeAt = r.WakeAt.Add(-time.Microsecond)
	d := Enqueue(rules, moment, r, now)
	if d.Answer != AnswerApplied || d.Change.EnqueueCount != 1 || d.Change.Enqueue != In(0) || d.Change.Wake != In(2*time.Second) {
		t.Errorf("a lost one: got %s %+v", d.Answer, d.Change)
	}
	if c := Renew(rules, moment, r).Change; c.EnqueueCount != 0 || c.Enqueue != In(0) || c.Wake != In(0) {
		t.Errorf("renew: got %+v", c)
	}
	r.LeaseOwner, r.WakeAt = "p/1", now.Add(time.Second)
	if Enqueue(rules, moment, r, now).Answer != AnswerKept || Renew(rules, moment, r).Answer != AnswerKept {
		t.Error("a reserved row was promised")
	}
}

func TestMarkAndReplay(t *testing.T) {
	t.Parallel()
	dead := row(StatusDead)
	for name, token := range map[string]Token{"fence": {Epoch: 7, Fence: 3}, "timeline": {Epoch: 6, Fence: 4}} {
		if d := MarkDLQ(moment, dead, token); d.Answer != AnswerKept {
			t.Errorf("mark with another %s: got %s", name, d.Answer)
		}
	}
	written := dead
	written.DLQ = DLQWritten
	if d := MarkDLQ(moment, written, held().Token); d.Answer != AnswerKept {
		t.Errorf("mark twice: got %s", d.Answer)
	}
	if c := Replay(moment, dead, actor, "again").Change; !strings.Contains(c.Message, "cancelled") {
		t.Errorf("the cancelled debt is not noted: %q", c.Message)
	}
	if c := Replay(moment, written, actor, "again").Change; c.Message != "again" {
		t.Errorf("message %q", c.Message)
	}
}
