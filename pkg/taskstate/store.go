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
	// Renew lets the lease of a process last from now on: that of all its claims at once (design D22).
	Renew(ctx context.Context, process string, lease time.Duration) error
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
	// Counts returns the number of tasks by status; base "" counts all bases.
	Counts(ctx context.Context, s Scope, base string) (map[Status]int64, error)
	// Due returns how many tasks could start now and the age of the oldest of them, counted up to limit rows a status.
	Due(ctx context.Context, limit int) (n int64, oldest time.Duration, err error)
	// NextWake returns how long until the first row of status wakes, at most limit; negative when it is overdue.
	NextWake(ctx context.Context, status Status, limit time.Duration) (time.Duration, error)
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
	CreatedAfter  time.Time
	CreatedBefore time.Time
	UpdatedAfter  time.Time
	UpdatedBefore time.Time
	Sort          Sort
	After         *Cursor // nil: the first page
	Limit         int     // 1–200
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
