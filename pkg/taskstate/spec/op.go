package spec

import (
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Kind is what sort of step an Op is.
type Kind uint8

// The kinds of step. Each is one call of a port, or one thing that happens to a process, the queue or the clock.
const (
	OpAccept     Kind = iota // the API commits a new task
	OpPublish                // the API adds its delivery
	OpForget                 // the API dies before it does
	OpRead                   // XREADGROUP
	OpClaim                  // claim by a delivery; again after a lost answer
	OpRecover                // claim by the recovery loop; again after a lost answer
	OpRecoverOwn             // the recovery loop meets what its own process holds, or has claimed without an answer
	OpAlone                  // claim of the own reservation
	OpRelease                // the reservation is dropped at a stop
	OpAckOld                 // XACK of the delivery that a claim replaced
	OpAdopt                  // XCLAIM of the row's entry
	OpRows                   // segment rows, under the holder's predicate
	OpVectors                // vectors, which have no fence
	OpBeat                   // heartbeat: renews, revives, or learns that the claim is lost
	OpSucceed                // the finishing transactions
	OpFail
	OpBreak
	OpThrottle
	OpSuspendHeld
	OpHandBack
	OpFinish     // the outcome again, after a lost answer
	OpDeadLetter // a dead letter
	OpAck        // XACK
	OpMark       // the dead letter is noted in the row
	OpCopy       // copy and XACK in one script
	OpAdd        // XADD
	OpWatermark  // the time of the first undelivered entry
	OpEnqueue    // lost rows are enqueued again
	OpOwed       // DEAD rows that owe a dead letter are found
	OpList       // XPENDING
	OpLook       // the row of a pending entry is read
	OpRenew      // the promise of a QUEUED row is renewed
	OpPin        // XPENDING by the pin's age, and the row
	OpUnpin      // the script that lets a pin go
	OpCancel     // what people do
	OpSuspend
	OpRetryNow
	OpReplay
	OpResume
	OpFlush // what goes wrong
	OpDuplicate
	OpCrash
	OpPause
	OpSleep
	OpStop
	OpEpoch    // timeline renew
	OpRestore  // the database comes back as it was before the first claim; then timeline renew
	OpContinue // what ends it
	OpExit
	OpLeaseEnds // the clock
	OpDue
	OpEnqueueAges
	OpIdles
	numKinds = iota
)

// kindNames are in the order of the kinds.
var kindNames = [numKinds]string{
	"accept", "publish", "forget", "read", "claim", "recover", "recover own", "alone", "release", "ack old", "adopt", "rows", "vectors", "beat",
	"succeed", "fail", "break", "throttle", "suspend held", "hand back", "finish", "letter", "ack", "mark", "copy", "add",
	"horizon", "promise", "owed", "list", "look", "renew", "pin", "let go", "cancel", "suspend", "retry now", "replay", "resume",
	"flush", "duplicate", "crash", "pause", "sleep", "stop", "timeline", "restore", "continue", "exit", "lease ends", "due", "promise ages", "idles",
}

// String names the kind.
func (k Kind) String() string { return kindNames[k] }

// Kinds lists every kind of step.
func Kinds() []Kind {
	out := make([]Kind, numKinds)
	for i := range out {
		out[i] = Kind(i)
	}
	return out
}

// fault reports whether the step is a fault or a person's act: nothing may depend on its coming.
func (k Kind) fault() bool {
	switch k {
	case OpForget, OpCancel, OpSuspend, OpRetryNow, OpReplay, OpResume, OpFlush, OpDuplicate, OpCrash, OpPause, OpSleep, OpStop, OpEpoch, OpRestore:
		return true
	default:
		return false
	}
}

// Reply says what the caller of a transaction hears.
type Reply uint8

// The replies.
const (
	ReplyHeard  Reply = iota
	ReplyLost         // it was committed, and the answer is lost
	ReplyUndone       // it was not committed, and the answer is lost
)

// Processes of an Op: workers, then loops, then the rest.
const (
	procLoop  = numWorkers
	procAPI   = numWorkers + numLoops
	procClock = procAPI + 1
)

// Op is one step.
type Op struct {
	Kind  Kind
	Proc  uint8 // 0, 1: workers; 2, 3: loops; then the API with its users, and the clock
	Task  uint8
	Entry uint8
	Reply Reply
}

// fault reports whether the step is one that nothing may depend on.
func (o Op) fault() bool { return o.Kind.fault() || o.Reply != ReplyHeard }

// actor names who does the step.
func (o Op) actor() string {
	switch {
	case o.Proc < numWorkers:
		return "worker " + string('A'+rune(o.Proc))
	case o.Proc < procAPI:
		return "loop " + string('1'+rune(o.Proc-procLoop))
	case o.Proc == procAPI:
		return "API"
	}
	return "world"
}

// Result is what a step did, besides changing the world.
type Result struct {
	Task       int // of the transaction
	Answer     taskstate.Answer
	Change     *taskstate.Change
	Transition taskstate.Transition // zero: none was written
	Acked      uint8                // entry that was acknowledged, copied or let go; it was pending
	DeadLetter uint16               // fence of the dead letter that was written, as a bit
	Effect     bool                 // segment rows were written
	Full       bool                 // the world has no room for another entry: the step did nothing
}

// Words tell the step and its result as a person would.
func (o Op) Words(res Result) string {
	out := o.actor() + ": " + o.Kind.String()
	if o.Kind != OpFlush && o.Kind != OpPause && o.Kind != OpCrash && o.Kind != OpContinue && o.Kind != OpStop && o.Kind != OpExit && o.Kind != OpSleep {
		out += " " + taskID(int(o.Task))
	}
	if o.Entry != 0 {
		out += fmt.Sprintf(" (entry %d)", o.Entry)
	}
	if res.Answer != "" {
		out += ": " + string(res.Answer)
	}
	if tr := res.Transition; tr.To != "" {
		out += fmt.Sprintf(", %s→%s %s, fence %d, attempts %d, crashes %d", tr.From, tr.To, tr.Reason, tr.Fence, tr.AttemptCount, tr.CrashCount)
	}
	if res.Acked != 0 {
		out += ", entry gone from the pending list"
	}
	switch o.Reply {
	case ReplyHeard:
	case ReplyLost:
		out += "; the answer is lost"
	case ReplyUndone:
		out += "; not committed, and the answer is lost"
	}
	return out
}
