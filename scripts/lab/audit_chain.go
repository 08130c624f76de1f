package lab

import "github.com/millweir/millweir/pkg/taskstate"

// chain checks a task's log by itself (contract §2): legal moves, each from where the last one ended, the fence
// grows by one at a claim and at nothing else, attempts and crashes count what they should, and the row agrees.
func chain(f *finding, t taskRow, log []taskstate.Transition) {
	if len(log) == 0 {
		f.add(t.id, "task %s has no transitions", t.id)
		return
	}
	last := taskstate.Transition{To: taskstate.StatusNone}
	for i, now := range log {
		if now.From != last.To {
			f.add(t.id, "task %s: transition %d goes from %q, the one before ended in %q", t.id, now.ID, now.From, last.To)
		}
		if !taskstate.Legal(now.From, now.To, now.Reason) {
			f.add(t.id, "task %s: transition %d is illegal: %s→%s for %s", t.id, now.ID, now.From, now.To, now.Reason)
		}
		if i > 0 && now.CreatedAt.Before(last.CreatedAt) {
			f.add(t.id, "task %s: transition %d is older than the one before it", t.id, now.ID)
		}
		counts(f, t.id, last, now)
		last = now
	}
	if last.To != t.status || last.AttemptCount != t.attempts || last.CrashCount != t.crashes || last.Fence != t.fence {
		f.add(t.id, "task %s: its row says %s attempt %d crashes %d fence %d, its log ends in %s attempt %d crashes %d fence %d",
			t.id, t.status, t.attempts, t.crashes, t.fence, last.To, last.AttemptCount, last.CrashCount, last.Fence)
	}
}

// counts checks fence, attempts and crashes of one step.
func counts(f *finding, id string, last, now taskstate.Transition) {
	fence := last.Fence
	if now.To == taskstate.StatusRunning {
		fence++
	}
	if now.Fence != fence {
		f.add(id, "task %s: transition %d (%s→%s %s) has fence %d, must be %d", id, now.ID, now.From, now.To, now.Reason, now.Fence, fence)
	}
	attempts, crashes := last.AttemptCount, last.CrashCount
	switch now.Reason {
	case taskstate.ReasonFailed, taskstate.ReasonStalled, taskstate.ReasonExhausted, taskstate.ReasonPermanent:
		attempts++
	case taskstate.ReasonTakeover, taskstate.ReasonCrashLimit:
		crashes++
	case taskstate.ReasonReplayed, taskstate.ReasonResumed:
		attempts, crashes = 0, 0
	default:
	}
	if now.AttemptCount != attempts {
		f.add(id, "task %s: transition %d (%s) has attempt %d, must be %d", id, now.ID, now.Reason, now.AttemptCount, attempts)
	}
	if now.CrashCount != crashes {
		f.add(id, "task %s: transition %d (%s) has crash count %d, must be %d", id, now.ID, now.Reason, now.CrashCount, crashes)
	}
}
