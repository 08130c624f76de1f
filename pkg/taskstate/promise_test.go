package taskstate

import (
	"testing"
	"time"
)

func TestEnqueuesOfEvents(t *testing.T) {
	t.Parallel()
	const early, late = -5 * time.Second, -time.Second // sent before and after the read watermark (now) less the slack (2 s)
	sent := func(seq int64, at time.Duration) EventTrail { return EventTrail{LastSent: seq, SentAt: now.Add(at)} }
	for _, tt := range []struct {
		name    string
		trail   EventTrail
		lost    bool
		enqueue time.Duration // promised_at, from now
		count   int           // the row says 1
	}{
		{"no event: it came by the other transport", EventTrail{}, true, 0, 2},
		{"sent long ago", sent(4, early), true, 0, 2},
		{"sent lately", sent(4, late), false, late, 1},
		{"sent exactly at the border", sent(4, -2*time.Second), false, -2 * time.Second, 1},
		{"one waits", EventTrail{Waiting: true}, false, 0, 2},
		{"one waits after one sent long ago", EventTrail{Waiting: true, LastSent: 4, SentAt: now.Add(early)}, false, 0, 2},
		{"dead and never sent", EventTrail{LastDead: 3}, false, 0, 2},
		{"dead after the last one sent", EventTrail{LastSent: 4, SentAt: now.Add(early), LastDead: 5}, false, 0, 2},
		{"dead before the last one sent", EventTrail{LastSent: 4, SentAt: now.Add(early), LastDead: 3}, true, 0, 2},
		{"dead before one sent lately", EventTrail{LastSent: 4, SentAt: now.Add(late), LastDead: 3}, false, late, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := row(StatusQueued)
			r.EnqueueCount, r.WakeAt = 1, now.Add(-2*time.Second-time.Microsecond)
			d := EnqueueEvent(rules, moment, r, now, tt.trail)
			if d.Change == nil {
				t.Fatalf("answer %s: every row that was looked at leaves the front", d.Answer)
			}
			c := d.Change
			wake := tt.enqueue + enqueueDelay(tt.count, rules.Slack)
			if c.Deliver != tt.lost || c.Enqueue != In(tt.enqueue) || c.EnqueueCount != tt.count || c.Wake != In(wake) || !c.Silent {
				t.Errorf("got deliver %v, promise %v, count %d, wake %v", c.Deliver, c.Enqueue, c.EnqueueCount, c.Wake)
			}
			r.WakeAt = now.Add(wake)
			if d := EnqueueEvent(rules, moment, r, now, tt.trail); d.Change != nil {
				t.Errorf("it is still in front: %+v", d.Change)
			}
		})
	}
}

func TestEventsOfOthersAreNotJudged(t *testing.T) {
	t.Parallel()
	r := row(StatusQueued)
	r.WakeAt = now.Add(-2 * time.Second)
	reserved, running := r, row(StatusRunning)
	reserved.WakeAt = now.Add(-time.Minute)
	reserved.LeaseOwner, reserved.WakeAt = "p/1", now.Add(time.Second)
	running.WakeAt = now.Add(-time.Minute)
	for name, r := range map[string]Task{"at the border": r, "reserved": reserved, "running": running} {
		if d := EnqueueEvent(rules, moment, r, now, EventTrail{}); d.Answer != AnswerKept || d.Change != nil {
			t.Errorf("%s: got %s", name, d.Answer)
		}
	}
}

func TestDeadLettersChangeTheirTransport(t *testing.T) {
	t.Parallel()
	dead := row(StatusDead)
	d := SendDLQ(moment, dead)
	if d.Change == nil || !d.Change.Deliver || d.Change.DLQ != DLQWritten || !d.Change.Silent || d.Change.Wake != Never() {
		t.Fatalf("an owed entry becomes an event: got %+v", d.Change)
	}
	sent := dead
	sent.DLQ = DLQWritten
	if d := SendDLQ(moment, sent); d.Change != nil {
		t.Errorf("nothing is owed: got %+v", d.Change)
	}
	for _, state := range []DLQState{DLQNone, DLQWritten} {
		sent.DLQ = state
		d := OweDLQ(moment, sent, sent.Fence)
		if d.Change == nil || d.Change.Deliver || d.Change.DLQ != DLQOwed || d.Change.Wake != In(0) {
			t.Errorf("%s: an unsent event becomes an owed entry: got %+v", state, d.Change)
		}
	}
	replayed := row(StatusQueued)
	for name, d := range map[string]Decision{
		"owed already": OweDLQ(moment, dead, dead.Fence), "another death": OweDLQ(moment, sent, sent.Fence-1),
		"replayed": OweDLQ(moment, replayed, replayed.Fence),
	} {
		if d.Change != nil {
			t.Errorf("%s: got %+v", name, d.Change)
		}
	}
}

func TestDeliveriesFollowEnqueuesOnly(t *testing.T) {
	t.Parallel()
	dead := row(StatusDead)
	cancelled, suspended, running, queued := row(StatusCancelled), row(StatusSuspended), row(StatusRunning), row(StatusQueued)
	noDLQ := rules
	noDLQ.DLQ = false
	permanent := Failure{Code: "X", Permanent: true}
	for name, tt := range map[string]struct {
		d    Decision
		want bool
	}{
		"handed back":          {HandBack(moment, running, held(), ""), true},
		"replay of dead":       {Replay(moment, dead, actor, ""), true},
		"replay of cancelled":  {Replay(moment, cancelled, actor, ""), true},
		"resumed":              {Resume(moment, suspended, actor, ""), true},
		"renewed":              {Renew(rules, moment, queued), true},
		"dead, entry owed":     {Fail(rules, moment, running, held(), permanent), false},
		"dead, nothing owed":   {Fail(noDLQ, moment, running, held(), permanent), true},
		"failed":               {Fail(noDLQ, moment, running, held(), Failure{Code: "X"}), false},
		"succeeded":            {Succeed(moment, running, held(), nil, ""), false},
		"cancelled by someone": {Cancel(moment, queued, actor, ReasonCancelled, ""), false},
	} {
		if tt.d.Change == nil {
			t.Errorf("%s: no change", name)
		} else if tt.d.Change.Deliver != tt.want {
			t.Errorf("%s: deliver %v", name, tt.d.Change.Deliver)
		}
	}
}
