package spec

// Sizes of the largest world.
const (
	maxTasks   = 2
	maxEntries = 6
	numWorkers = 2
	numLoops   = 2
)

// World is one state: rows, the stream with its pending entries, the dead letters, one document, and where every
// process stands. It is a comparable value without pointers; times are ages, not instants.
type World struct {
	Rows    [maxTasks]Row
	Stream  [maxEntries]Entry // in stream order, undelivered and pending ones; entry n is at n−1, 0 is none
	Workers [numWorkers]Worker
	Loops   [numLoops]Loop
	Doc     Document
	Epoch   uint8 // how often it was renewed
	Left    Faults
}

// Faults is a budget of what may go wrong, and of what people do.
type Faults struct {
	Crashes    uint8 // kill -9 of any process
	Pauses     uint8 // SIGSTOP past the lease
	Duplicates uint8 // a delivery that comes twice
	Unknown    uint8 // a COMMIT without an answer, done or not done
	Flushes    uint8 // FLUSHALL
	Stops      uint8 // SIGTERM of a worker
	Acts       uint8 // cancel, suspend, retry now
	Replays    uint8 // replay of DEAD and CANCELLED, resume of SUSPENDED
	Throttles  uint8 // a service that asks to wait
	Sleeps     uint8 // all processes stand still for longer than a lease: their machine slept
	Restores   uint8 // timeline renew, with or without a database that was put back before it
}

// State is a status in one byte.
type State uint8

// The states, in the order of stateNames.
const (
	stNone State = iota
	stQueued
	stRunning
	stRetrying
	stSucceeded
	stDead
	stSuspended
	stCancelled
)

// Age is a time column, seen from now.
type Age uint8

// The ages.
const (
	ageNone  Age = iota // the column's "none"
	ageAhead            // still to come
	agePast             // reached
)

// Owner is a lease owner's text in one byte.
type Owner uint8

// The owners; a worker's are ownerOf and ownerBefore.
const (
	ownerNone Owner = iota
	ownerGone       // a process that is no more
)

// ownerOf is the text of worker w's newest claiming call.
func ownerOf(w int) Owner { return Owner(2 + 2*w) }

// ownerBefore is the text of an older call of worker w.
func ownerBefore(w int) Owner { return Owner(3 + 2*w) }

// Row is a task's row. The second half are ghosts: no process reads them, only the rules do.
type Row struct {
	State     State
	Fence     uint8
	Attempts  uint8
	Crashes   uint8
	Throttles uint8
	Lease     Age
	Due       Age
	Stale     bool // wake_at lies further back than the slack
	Owner     Owner
	Owed      bool  // dlq_state owed
	Marked    bool  // dlq_state written
	Delivery  uint8 // entry; 0 also when the named entry is gone
	Version   Version
	Adds      uint8 // XADDs that the API has promised with a commit and not made yet

	Claimant    Owner  // who made the claim with this fence: ownerOf its worker, or ownerGone
	Ended       uint8  // highest fence whose hold has ended, plus one
	Deaths      uint16 // fences with which it was DEAD, as bits
	DeadLetters uint16 // fences of its dead letters, as bits
	Log         Logged // what its last transition says
	Taken       bool   // a reservation was made of it when its lease had expired
	Slept       bool   // its lease ended while all stood still, and nobody has renewed or taken it since
}

// Logged is what the last transition says; it equals the row unless somebody forgot to write it.
type Logged struct {
	State                    State
	Fence, Attempts, Crashes uint8
}

// Version is the document version that a task builds.
type Version struct {
	No    uint8
	State VersionState
	Parts uint8 // partRows, partVectors
}

// VersionState is the life of a version.
type VersionState uint8

// The states of a version.
const (
	versionNone VersionState = iota
	versionBuilding
	versionVisible
	versionSuperseded
	versionAbandoned
)

// What a version consists of.
const (
	partRows    = 1
	partVectors = 2
	allParts    = partRows | partVectors
)

// Document is what a reader sees; both tasks are uploads of it, in the order of their numbers.
type Document struct {
	Visible uint8 // version number; 0: none
	Upload  uint8 // upload number of the visible version
	Next    uint8 // versions made so far
}

// Entry is a delivery in the stream.
type Entry struct {
	Kind  EntryKind
	Task  uint8
	Own   Owner // whose pending list it is in: ownerOf a worker, or ownerGone
	Idle  uint8 // 1: longer than a lease; 2: longer than the trim's pin
	Since uint8 // tasks, as bits, whose wake_at lay further back than the slack when it was added
}

// EntryKind says where an entry is.
type EntryKind uint8

// The kinds of entry.
const (
	entryNone EntryKind = iota
	entryNew            // not delivered
	entryPending
)

// Worker is a stream-worker with one slot.
type Worker struct {
	Pause PauseState
	At    Step
	Task  uint8
	Entry uint8
	Fence uint8
	Line  uint8 // timeline of its token
	Old   uint8 // replaced delivery that it has to acknowledge
	Had   bool  // its entry was there when it read or adopted it
	No    uint8 // version that it builds
	Doing Kind  // outcome whose answer was lost
	Debt  bool  // the entry that it acknowledges is followed, or preceded, by a dead letter
}

// PauseState is what happens to a process.
type PauseState uint8

// The states of a process; one that was killed is started anew at once under another name.
const (
	procAlive PauseState = iota
	procPaused
	procStopping // it got SIGTERM
)

// Step is where a worker stands.
type Step uint8

// The steps of a worker.
const (
	atIdle       Step = iota
	atRead            // it has an entry and has not claimed
	atUnsure          // its claim by an entry had no answer
	atUnsureRe        // its claim by recovery had no answer
	atUnsureSo        // its claim of a reserved task had no answer
	atReserved        // it holds a reservation
	atEarlyAck        // only without AckAfterCommit
	atAckOld          // it has won a claim and has to acknowledge the delivery before
	atAdopt           // it has won a claim by recovery and takes the row's entry over
	atRun             // it reads, splits and embeds
	atRows            // segment rows are written
	atVectors         // vectors are written
	atUnsureFin       // its outcome had no answer
	atDeadLetter      // it has to write a dead letter
	atAck             // it has to acknowledge its entry
	atMark            // it has to mark the dead letter
	atCopy            // it has to replace its entry by a copy
	atAdd             // it has to add an entry
)

// Loop is a process with the loops that need no slot: read watermark sweep, owed dead letters, reconciling, pins.
type Loop struct {
	Pause PauseState
	At    LoopStep
	Task  uint8
	Entry uint8
	Fence uint8
	Line  uint8
	Mask  uint8 // tasks: that were lost at the read watermark, or that have to be added
	Debt  bool  // the entry that it acknowledges comes with a dead letter, which is marked next
}

// LoopStep is where a loop stands.
type LoopStep uint8

// The steps of a loop.
const (
	loopIdle       LoopStep = iota
	loopWatermark           // it knows the read watermark
	loopAdd                 // it has promised and adds
	loopLook                // XPENDING named an entry; the row is read next
	loopRenew               // the row was QUEUED: the promise is renewed next
	loopCopy                // the promise is renewed: copy and acknowledgement next
	loopAck                 // the row needs no entry
	loopDeadLetter          // the row owes a dead letter
	loopMark
	loopUnpin // the row was RETRYING and the entry stands in the way of the trim
)

// canon makes worlds that differ only in the names of equal parts the same; swapped tells that the workers changed places.
func (m *Model) canon(w *World) (swapped bool) {
	w.settle()
	w.compact()
	if w.before() {
		w.swap()
		return true
	}
	return false
}

// settle forgets what nobody can see any more.
func (w *World) settle() {
	for t := range w.Rows {
		r := &w.Rows[t]
		if r.State == stSucceeded {
			r.Delivery, r.Attempts, r.Crashes, r.Log.Attempts, r.Log.Crashes = 0, 0, 0, 0, 0
		}
		if r.State != stRunning {
			r.Claimant, r.Slept = ownerNone, false
		}
		if r.State != stQueued {
			for i := range w.Stream {
				w.Stream[i].Since &^= 1 << t
			}
		}
	}
	for i := range w.Stream {
		if w.Stream[i].Kind == entryPending {
			w.Stream[i].Since = 0
		}
	}
}

// before reports whether the world reads better with its workers exchanged.
func (w *World) before() bool {
	a, b := w.Workers[0].rank(), w.Workers[1].rank()
	if a != b {
		return b < a
	}
	for i := range w.Stream {
		switch w.Stream[i].Own {
		case ownerOf(0):
			return false
		case ownerOf(1):
			return true
		default:
		}
	}
	for t := range w.Rows {
		if o := w.Rows[t].Owner; o >= ownerOf(0) {
			return o >= ownerOf(1)
		}
	}
	return false
}

// rank orders workers.
func (x *Worker) rank() uint64 {
	bit := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	out := uint64(x.At)<<8 | uint64(x.Pause)
	for _, part := range []uint64{
		uint64(x.Task), uint64(x.Entry), uint64(x.Fence), uint64(x.Line)<<4 | uint64(x.Old), uint64(x.No)<<3 | bit(x.Had)<<1 | bit(x.Debt),
	} {
		out = out<<7 | part
	}
	return out<<6 | uint64(x.Doing)
}

// swap exchanges the workers and every mention of them.
func (w *World) swap() {
	w.Workers[0], w.Workers[1] = w.Workers[1], w.Workers[0]
	other := [...]Owner{ownerNone, ownerGone, ownerOf(1), ownerBefore(1), ownerOf(0), ownerBefore(0)}
	for t := range w.Rows {
		w.Rows[t].Owner, w.Rows[t].Claimant = other[w.Rows[t].Owner], other[w.Rows[t].Claimant]
	}
	for i := range w.Stream {
		w.Stream[i].Own = other[w.Stream[i].Own]
	}
}
