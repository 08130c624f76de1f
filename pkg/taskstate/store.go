package taskstate

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Errors of a Store.
var (
	// ErrNotFound: no such task in this scope. Unknown and foreign look the same.
	ErrNotFound = errors.New("task not found")
	// ErrDuplicateKey: the user has used this idempotency key before.
	ErrDuplicateKey = errors.New("idempotency key already used")
	// ErrUnique: a statement met a row that has the same unique key. The database's own error is wrapped beside it.
	ErrUnique = errors.New("unique key exists already")
	// ErrUnavailable: the database does not answer; nothing is known to have changed.
	// After an unknown COMMIT the store has read back what it did, so a call that returns this error did nothing.
	ErrUnavailable = errors.New("database unavailable")
	// ErrOutcomeUnknown: a COMMIT got no answer and what became of it could not be found out:
	// the database stayed away, or the call was WithClaims or InTx, whose writes the store cannot name.
	ErrOutcomeUnknown = errors.New("outcome of the transaction unknown")
	// ErrLost: the claim is no longer the one that the row names; its holder stops.
	ErrLost = errors.New("claim lost")
)

// Role is what a caller may do.
type Role string

// The roles.
const (
	RoleUser     Role = "user"
	RoleOperator Role = "operator" // sees and acts on every user's tasks
)

// Scope is who asks; every read and write on behalf of somebody takes one.
type Scope struct {
	UserID string
	Role   Role
}

// System is the scope of the services' own loops.
func System() Scope { return Scope{UserID: "system", Role: RoleOperator} }

// All reports whether the scope reaches every user's rows.
func (s Scope) All() bool { return s.Role == RoleOperator }

// Actor is the audit's name of a person in this scope.
func (s Scope) Actor() Actor {
	if s.Role == RoleOperator {
		return Actor{Kind: ActorOperator, Name: s.UserID}
	}
	return Actor{Kind: ActorUser, Name: s.UserID}
}

// Tx is the open transaction that hooks may use; placeholders are "?" in every dialect (the store rebinds them).
// Hooks must not keep it and must not commit. Errors of ExecContext wrap ErrUnique where that is the reason.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// PrepareFunc makes the rows around new tasks (documents, versions, files) and returns the tasks to insert.
// It runs again from the start when the transaction is retried, so it must not depend on what an earlier run left in memory.
// A task that it leaves out is not made; an error that is not the database's own ends the call as it is.
type PrepareFunc func(ctx context.Context, tx Tx, m DBClock) ([]NewTask, error)

// DecideFunc decides on locked tasks, in id order, and leaves them as they are; it may read and lock more through tx (documents, by id).
// It runs again when the transaction is retried.
type DecideFunc func(ctx context.Context, tx Tx, m DBClock, tasks []Task) ([]Decision, error)

// TransitionFunc writes what belongs to the changes into their transaction, after the tasks' UPDATE (design D9).
// changed has the decisions whose change was written; it runs again when the transaction is retried.
type TransitionFunc func(ctx context.Context, tx Tx, m DBClock, changed []Decision) error

// TxFunc works inside an open transaction; it runs again from the start when the transaction is retried.
type TxFunc func(ctx context.Context, tx Tx, m DBClock) error

// ClaimedTask is a claim that its holder wants to write under; no task comes twice in one call.
type ClaimedTask struct {
	TaskID string
	Token  Token
}

// ClaimsFunc is a TxFunc of several holders: held tells by the claim's place whether its predicate holds.
type ClaimsFunc func(ctx context.Context, tx Tx, m DBClock, held []bool) error

// WithClaim is WithClaims for one task: f runs only under its holder's predicate. ErrLost when that does not hold.
func WithClaim(ctx context.Context, s Store, taskID string, token Token, f TxFunc) error {
	return s.WithClaims(ctx, []ClaimedTask{{TaskID: taskID, Token: token}}, func(ctx context.Context, tx Tx, m DBClock, _ []bool) error {
		return f(ctx, tx, m)
	})
}

// ReadFunc reads outside a transaction; it may run again from the start, so it keeps nothing of a try that failed.
type ReadFunc func(ctx context.Context, db Tx) error

// Changed is a row as it is after a change.
type Changed struct {
	Task   Task
	Change *Change // nil: it was just accepted
}

// OutboxFunc writes the messages about rows into their transaction, after the log (design D11); the rows are those that were
// accepted and those whose change says Deliver. It returns how many it wrote, and runs again when the transaction is retried.
type OutboxFunc func(ctx context.Context, tx Tx, m DBClock, rows []Changed) (n int, err error)

// Each makes a DecideFunc of a pure function.
func Each(f func(m DBClock, t Task) Decision) DecideFunc {
	return func(_ context.Context, _ Tx, m DBClock, tasks []Task) ([]Decision, error) {
		out := make([]Decision, len(tasks))
		for i, t := range tasks {
			out[i] = f(m, t)
		}
		return out, nil
	}
}

// NewTask is a task to accept. Its ID (UUIDv7 text) is made by the caller, so that an unknown COMMIT can be read back.
type NewTask struct {
	Task        // ID, UserID, Type, Channel, MaxAttempts and what else describes it; state columns are ignored
	Actor Actor // who sent it
}

// Batch is one call of Store.Apply.
type Batch struct {
	IDs          []string       // no duplicates
	Scope        Scope          // rows out of it answer as if they did not exist
	Decide       DecideFunc     // asked for the rows that exist
	OnTransition TransitionFunc // may be nil
	// Held are the rows as their holder claimed them, in the order of IDs, sorted; nil: they are read. Decide is asked about these, and
	// a change is written where the row still names the same claim: nobody else changes what a decision looks at. If a row
	// does not, the rows are locked and read, and Decide is asked about those. Decide locks nothing: the rows come first.
	Held []Task
}

// Sweep is one call of Store.Sweep.
type Sweep struct {
	Status       Status
	WakeBefore   Delay     // DelayIn: rows with wake_at <= now + In; negative values look back
	Before       time.Time // when not zero, it replaces WakeBefore: rows with wake_at < Before
	Limit        int
	Exclude      []string // ids that this process already knows; at most a few hundred
	Decide       DecideFunc
	OnTransition TransitionFunc
}

// Outcome is what a Store did for one task of a Batch or Sweep.
type Outcome struct {
	Decision
	// Before is the row as it was when it was locked; the zero Task (and AnswerSkipped) when there is none in scope.
	Before Task
	// After is Before with the change applied, times as the database wrote them; equal to Before without a change.
	After Task
	// Err is set when this row's change could not be written although the others' could (design D9: split and tried singly).
	Err error
}

// Beat is one held claim or reservation in a Heartbeat.
type Beat struct {
	TaskID   string
	Status   Status // RUNNING, or the status of a reserved row
	Token    Token
	Owner    string    // lease_owner as the claim set it
	Renew    bool      // set the lease of a QUEUED or RETRYING task's reservation anew
	Progress *Progress // nil: unchanged
}

// HeldTask is a RUNNING task as its state names its holder or reserver.
type HeldTask struct {
	TaskID string
	Fence  int64
	Owner  string // lease_owner
}

// Store keeps tasks with their log. All methods are safe for concurrent use.
//
// Every write is one transaction with a constant number of statements whatever the size of the batch;
// deadlocks and serialization failures are retried inside, an unknown COMMIT is read back before anything is repeated.
// Errors: ErrUnavailable (wrapped, with the cause) when the database does not answer; what hooks returned, as it is.
type Store interface {
	// Submit runs prepare and inserts the tasks that it returns as QUEUED, with their first transitions.
	// It returns the tasks as written. ErrDuplicateKey when (user_id, idempotency_key) exists.
	Submit(ctx context.Context, prepare PrepareFunc) ([]Task, error)
	// Apply locks the tasks of b in id order, asks b.Decide and writes the changes with their transitions.
	// Outcomes come in the order of b.IDs.
	Apply(ctx context.Context, b Batch) ([]Outcome, error)
	// Sweep locks at most s.Limit rows of one status in wake_at order that no other transaction has locked, and goes on as Apply.
	Sweep(ctx context.Context, s Sweep) ([]Outcome, error)
	// Renew lets the lease of a process last from now on, that of all its claims at once (design D22), and notes how many tasks the
	// process may run at once.
	Renew(ctx context.Context, process string, lease time.Duration, slots int) error
	// Drains reports whether an operator wants a process to take no more tasks; no for one that has never claimed.
	Drains(ctx context.Context, process string) (bool, error)
	// Drained notes that a process that drains has finished what it had.
	Drained(ctx context.Context, process string) error
	// Drain asks the latest start of a process to take no more tasks, or with off to take some again; note is written with it (nil:
	// nothing). ErrNotFound: none of that name has had a lease within a time. ErrOutcomeUnknown.
	Drain(ctx context.Context, process string, off bool, ago time.Duration, note TxFunc) error
	// Held returns the RUNNING tasks of a process whose calls wake within a time: what it does not hold any more nobody else finds
	// (Abandon).
	Held(ctx context.Context, process string, within time.Duration) ([]HeldTask, error)
	// Heartbeat asks about all beats and returns the ids whose claim is lost, then writes the progress and renews the reservations of the
	// others that have any, each in one statement. When the second fails, lost is returned with the error.
	Heartbeat(ctx context.Context, lease time.Duration, beats []Beat) (lost []string, err error)
	// WithClaims runs f in a transaction that is opened by locking the tasks of claims, in id order, under their holders'
	// predicates (id, status RUNNING, fence, timeline). f is told for each of them whether its predicate holds, and must write
	// nothing for one that does not. ErrLost, without a call of f, when none holds.
	WithClaims(ctx context.Context, claims []ClaimedTask, f ClaimsFunc) error
	// Get reads one task. ErrNotFound.
	Get(ctx context.Context, s Scope, id string) (Task, error)
	// GetMany reads those of ids that exist in the scope, in any order.
	GetMany(ctx context.Context, s Scope, ids []string) ([]Task, error)
	// Transitions reads the log of one task after a transition id, oldest first. ErrNotFound.
	Transitions(ctx context.Context, s Scope, taskID string, after int64, limit int) ([]Transition, error)
	// TransitionsOf reads the log of many tasks after one transition id each, oldest first; those of one call in the order of their tasks.
	TransitionsOf(ctx context.Context, after map[string]int64, limit int) ([]Transition, error)
	// Moment returns the database's clock and timeline.
	Moment(ctx context.Context) (DBClock, error)
}

// Reader is what screens, gauges and loops ask about all tasks. It changes no task; errors as Store.
type Reader interface {
	// List reads a page of tasks.
	List(ctx context.Context, s Scope, q Query) (Page, error)
	// Count returns how many tasks a list of q would have, by status, whatever its order, place and limit. It looks at each
	// of them, but for what Counts knows.
	Count(ctx context.Context, s Scope, q Query) (map[Status]int64, error)
	// FailureGroups reads a page of groups of failures, that with the latest failure first.
	FailureGroups(ctx context.Context, s Scope, q GroupQuery) ([]FailureGroup, error)
	// ForgetFailures removes groups of failures without a task whose last failure was longer than a time ago.
	ForgetFailures(ctx context.Context, ago time.Duration) error
	// Workers lists the starts of processes whose lease ended later than a time ago, the latest first: at most limit.
	Workers(ctx context.Context, ago time.Duration, limit int) ([]Worker, error)
	// Counts returns the number of tasks by status; base "" counts all bases. It looks at no task.
	Counts(ctx context.Context, s Scope, base string) (map[Status]int64, error)
	// CountsIn is Counts for each of some bases; one without tasks is not in it.
	CountsIn(ctx context.Context, s Scope, bases []string) (map[string]map[Status]int64, error)
	// Pace returns how the tasks of a base come on; base "" is all bases.
	Pace(ctx context.Context, s Scope, base string, ago time.Duration) (Pace, error)
	// Past returns what ended in a span of time, from its beginning up to its end, which is not part of it.
	Past(ctx context.Context, from, to time.Time) (Past, error)
	// Due returns how many tasks could start now and the age of the oldest of them, counted up to limit rows a status.
	Due(ctx context.Context, limit int) (n int64, oldest time.Duration, err error)
	// NextWake returns how long until the first row of status wakes, at most limit; negative when it is overdue.
	NextWake(ctx context.Context, status Status, limit time.Duration) (time.Duration, error)
	// CallNumbers returns the numbers of the calls in some spans, in their order: at most limit. A call gets its number before it is committed: one
	// that is missing between others may appear later, but the calls that changed one task appear in their order.
	CallNumbers(ctx context.Context, spans []Span, limit int) ([]int64, error)
	// FirstCall returns the number of the first call that was written at a time or later; 0: there is none.
	FirstCall(ctx context.Context, at time.Time) (int64, error)
	// Changes returns what calls wrote to the logs of tasks, in the order of their numbers; that of one call in the order of its tasks.
	Changes(ctx context.Context, calls []int64) ([]Transition, error)
}

// Span is the numbers of calls from First to Last.
type Span struct{ First, Last int64 }

// Unfinished adds up the tasks that have neither ended nor wait for a person.
func Unfinished(counts map[Status]int64) int64 {
	return counts[StatusQueued] + counts[StatusRunning] + counts[StatusRetrying]
}

// Pace is how tasks come on.
type Pace struct {
	Stages map[Stage]int64 // tasks that are RUNNING, by their stage
	Oldest time.Time       // when the oldest task that is QUEUED, RUNNING or RETRYING was made; zero: there is none
	Ended  int64           // tasks that became SUCCEEDED or DEAD within the time that was asked for
	Since  time.Duration   // how long ago the first of them did; 0: none
	Took   []time.Duration // from submit to SUCCEEDED, of the last ones within that time, the shortest first: at most 1,000
}

// TookAt is how long so many percent of the last tasks took at most; 0: none has ended.
func (p Pace) TookAt(percent int) time.Duration { return tookAt(p.Took, percent) }

// tookAt is how long so many percent of some tasks took at most, the shortest of which is first; 0: there are none.
func tookAt(took []time.Duration, percent int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	return took[(len(took)*percent+99)/100-1]
}

// Past is what ended in a span of time.
type Past struct {
	Succeeded, Dead int64
	AtLeast         bool            // more calls ended tasks than were looked at: the numbers are higher
	Took            []time.Duration // from submit to SUCCEEDED, of the last ones in it, the shortest first: at most 100
}

// TookAt is how long so many percent of these tasks took at most; 0: none has ended.
func (p Past) TookAt(percent int) time.Duration { return tookAt(p.Took, percent) }

// PerMinute is how many tasks end in a minute. What began only now says no more than what ten seconds would.
func (p Pace) PerMinute() float64 {
	if p.Ended == 0 {
		return 0
	}
	return float64(p.Ended) / max(p.Since, 10*time.Second).Minutes()
}

// Left is how long so many tasks take at that pace; 0: nobody can say.
func (p Pace) Left(tasks int64) time.Duration {
	if p.Ended == 0 {
		return 0
	}
	return time.Duration(float64(tasks) / p.PerMinute() * float64(time.Minute))
}

// DB is the database below the tasks, for statements about what stands beside them. Errors as Store.
type DB interface {
	// InTx runs f in a transaction of its own, with the same retries.
	InTx(ctx context.Context, f TxFunc) error
	// Read runs f outside a transaction: again when a connection was dead, and never longer than the database may take.
	Read(ctx context.Context, f ReadFunc) error
	// Dialect is mysql, postgres or sqlite.
	Dialect() string
	// Ping returns nil when the database can be written.
	Ping(ctx context.Context) error
}

// Database is all of it: what a store in a database is.
type Database interface {
	Store
	Reader
	DB
}

// Query selects tasks of a list; zero fields do not limit.
type Query struct {
	Statuses      []Status
	KnowledgeBase string
	DocumentID    string
	Stage         Stage
	Text          string // in the id, file name or last error
	UserID        string // whose tasks, of those in the scope
	Type          string
	Workflow      string
	Code          string // of the error
	Error         string // in the last error
	FileName      string // in the name of the file
	FailureGroup  string // an id: tasks whose last failure is of this group (Cause); such a list is in an order by createdAt
	AttemptsFrom  int    // at least so many failed attempts
	AttemptsBelow int    // fewer than that; 0: any number
	CreatedAfter  time.Time
	CreatedBefore time.Time
	UpdatedAfter  time.Time
	UpdatedBefore time.Time
	Sort          Sort
	After         *Cursor // nil: the first page
	Limit         int     // 1–200
}

// GroupQuery selects groups of failures; zero fields do not limit.
type GroupQuery struct {
	ID            string  // of one group
	KnowledgeBase string  // its id
	After         *Cursor // the last group's LastAt and ID; nil: the first page
	Limit         int     // 1–200
}

// FailureGroup is what failures with one cause have in common, over all users, bases and stages that are asked about.
type FailureGroup struct {
	ID        string // Cause.Group
	Cause     Cause
	Permanent bool  // no retry cures it, as of the latest failure
	Failures  int64 // ever
	Tasks     int64 // that fail with it now (Task.Fails)
	FirstAt   time.Time
	LastAt    time.Time
	Stages    []Stage  // where it happens
	Bases     []string // ids; tasks without a document have none
	Sample    string   // an error as it was, at most 500 characters
	Message   string   // and what its user was told
	SampleID  string   // its task
}

// Worker is a start of a process that has claimed tasks.
type Worker struct {
	Name       string
	StartedAt  time.Time // when it had its first lease
	LeaseUntil time.Time // it holds all its claims until then
	Alive      bool      // by the database's clock
	Slots      int       // tasks that it may run at once, as of its last renewal; -1: it has not said it
	DrainAt    time.Time // since when it is to take no more tasks; zero: it takes some
	DrainedAt  time.Time // when it had finished what it had; zero: not yet
}

// Sort is the order of a list; ties go by id in the same direction.
type Sort string

// The orders; a minus sign means newest first.
const (
	SortCreated     Sort = "createdAt"
	SortCreatedDesc Sort = "-createdAt"
	SortUpdated     Sort = "updatedAt"
	SortUpdatedDesc Sort = "-updatedAt"
)

// Page is what List found. A search that no index serves ends after so many tasks: what it has then is a page, maybe an empty
// one, and More says where to go on.
type Page struct {
	Tasks []Task
	More  *Cursor // nil: the list ends here, if Tasks are fewer than the limit
}

// Cursor is the sort key of the last row of a page.
type Cursor struct {
	At time.Time
	ID string
}
