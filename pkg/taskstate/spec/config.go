package spec

import (
	"math/bits"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Config says how large a world is and what may happen in it.
type Config struct {
	Name        string
	Tasks       int // 1 or 2
	MaxAttempts int
	MaxCrashes  int
	Faults      Faults
	Outcomes    Outcomes
	Duties      [numLoops]Duties
	Document    bool // the tasks build versions of one document
	Without     Rule // rules that are taken away, to see that the checks miss them
}

// Outcomes are the ways in which runs may end besides success; bits.
type Outcomes uint8

// The outcomes.
const (
	MayFail    Outcomes = 1 << iota // an attempt fails
	MayBreak                        // it fails for good
	MaySuspend                      // its holder wants a person to look
	MayAllFail = MayFail | MayBreak | MaySuspend
)

// Duties are what a loop process does; bits.
type Duties uint8

// The duties.
const (
	Sweeps  Duties = 1 << iota // lost deliveries (design D5)
	Owed                       // owed dead letters (design D11)
	Settles                    // pending entries (design D4)
	Pins                       // entries that hold the trim up (design D4)
)

// Rule is one rule of the design that a model can go without; bits. Some stand for the seeded bugs m1, m2 … of
// deploy/docs/mutants.md, at the place where the model makes the call.
type Rule uint32

// The rules.
const (
	FenceInFinish       Rule = 1 << iota // m1
	FenceInHeartbeat                     // m2
	LeaseInTakeover                      // m3
	LogInTransaction                     // m4
	AckAfterCommit                       // m5
	DeadLetterBeforeAck                  // m6
	PartsBeforeSwitch                    // m8
	OldUntilNew                          // m9
	FreeHandBack                         // m10: a hand-back counts no attempt
	FreshReplay                          // m11: a replay starts at 0
	EpochInToken
	FenceInEffect
	DueInClaim
	UploadOrder
	OneCopy // a copy only if the acknowledgement found the entry
	FenceInMark
	WatermarkSweep
	OwedSweep
	Settling
	RecoverySweep
	ReplayCancelsDebt
	ReservationIsNoClaim // a reservation that a lost answer hid is not taken for a claim
	TakeoverByAnother    // m18: a process leaves its own live claims out
	RestAfterStandstill  // after a standstill of all, heartbeats come before takeovers
	numRules             = iota
)

// ruleNames are in the order of the bits.
var ruleNames = [numRules]string{
	"FenceInFinish", "FenceInHeartbeat", "LeaseInTakeover", "LogInTransaction", "AckAfterCommit", "LetterBeforeAck",
	"PartsBeforeSwitch", "OldUntilNew", "FreeHandBack", "FreshReplay", "TimelineInToken", "FenceInEffect", "DueInClaim",
	"UploadOrder", "OneCopy", "FenceInMark", "HorizonSweep", "OwedSweep", "Settling", "RecoverySweep",
	"ReplayCancelsDebt", "ReservationIsNoClaim", "TakeoverByAnother", "RestAfterStandstill",
}

// String names the rule, or the first of several.
func (r Rule) String() string {
	if r == 0 {
		return "none"
	}
	return ruleNames[bits.TrailingZeros32(uint32(r))]
}

// Times of the model: only their order matters.
const (
	modelLease = time.Minute
	modelSlack = 2 * time.Second
	modelLong  = 24 * time.Hour
)

// epoch is the model's now; nothing ever happens at another instant.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Model is the world's laws. It is immutable and safe for concurrent use.
type Model struct {
	cfg    Config
	policy taskstate.Policy
}

// New makes a model.
func New(cfg Config) *Model {
	return &Model{cfg: cfg, policy: taskstate.Policy{
		BaseBackoff: time.Second, MaxBackoff: 3 * time.Second, Lease: modelLease,
		MaxCrashes: cfg.MaxCrashes, Slack: modelSlack, DLQ: true,
	}}
}

// Start is the world before anything happened.
func (m *Model) Start() World { return World{Left: m.cfg.Faults} }

// without reports whether a rule is taken away.
func (m *Model) without(r Rule) bool { return m.cfg.Without&r != 0 }

// moment is the database's word on time.
func (m *Model) moment(w *World) taskstate.DBClock {
	return taskstate.DBClock{Now: epoch, Epoch: int64(w.Epoch) + 1}
}
