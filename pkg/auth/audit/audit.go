// Package audit keeps the log of who did what beyond his own documents: failed logins, refused access, keys, operators' steps.
//
// Rows are only ever added (table audit_event). What an operator changes is noted in the transaction of the change (Note),
// so neither is there without the other; what somebody tried is counted in memory and written from time to time (Tried),
// so that a flood of attempts costs one row per kind. A crash loses at most flushEvery of those counts.
package audit

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed queries/*.sql
var queries embed.FS

// Action is what was done or tried.
type Action string

// The actions.
const (
	LoginFailed      Action = "login_failed"  // a key or token that is not valid
	AccessDenied     Action = "access_denied" // a valid caller without the role or scope
	KeyCreate        Action = "key_create"
	KeyRevoke        Action = "key_revoke"
	SessionOpen      Action = "session_open" // a log-in to the console; target: the key
	TaskRetry        Action = "task_retry"   // also the replay of a DEAD or CANCELLED one
	TaskCancel       Action = "task_cancel"
	TaskDrop         Action = "task_drop"
	TaskSuspend      Action = "task_suspend"
	TaskResume       Action = "task_resume"
	TaskBulk         Action = "task_bulk" // target: what is done to many tasks; detail: which, and why
	DocumentDelete   Action = "document_delete"
	BaseDelete       Action = "base_delete"
	BaseChange       Action = "base_change"
	EventRequeue     Action = "event_requeue" // of the outbox
	DeadLetterReplay Action = "letter_replay" // dead letters
	DeadLetterDrop   Action = "letter_drop"   // target: the death, taskId-fence, which fsck asks for
	QueueTrim        Action = "queue_trim"    // topics and groups of streammq
	QueueReset       Action = "queue_reset"
	QueueDelete      Action = "queue_delete"
	WorkerDrain      Action = "worker_drain" // target: the process
	WorkerResume     Action = "worker_resume"

	InstallationCheck  Action = "installation_check"  // target: check, or dry run of a repair
	InstallationRepair Action = "installation_repair" // detail: why
)

// Actions lists them all.
func Actions() []Action {
	return []Action{
		LoginFailed, AccessDenied, KeyCreate, KeyRevoke, SessionOpen, TaskRetry, TaskCancel, TaskDrop, TaskSuspend, TaskResume, TaskBulk, DocumentDelete, BaseDelete, BaseChange, EventRequeue,
		DeadLetterReplay, DeadLetterDrop, QueueTrim, QueueReset, QueueDelete, WorkerDrain, WorkerResume, InstallationCheck, InstallationRepair,
	}
}

// Source is who acts and from where.
type Source struct {
	Actor     string // user id; empty: unknown
	Role      taskstate.Role
	KeyID     string // empty: no API key
	IP        string // empty: not over the network
	RequestID string
}

// Event is one row.
type Event struct {
	ID     int64 // by the database
	At     time.Time
	Action Action
	Source Source
	Target string // what it was done to
	Detail string
	Times  int // how often; 0 counts as 1
}

// Note returns the function that writes an event in an open transaction.
func (l *Log) Note(e Event) taskstate.TxFunc {
	return func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		return l.insert(ctx, tx, m, e)
	}
}

// insert writes one row with the transaction's time.
func (l *Log) insert(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, e Event) error {
	s := e.Source
	_, err := tx.ExecContext(ctx, l.q.Get("EventInsert"), m.Now.UTC().Truncate(time.Microsecond), string(e.Action),
		clean(s.Actor, 190), clean(string(s.Role), 20), clean(s.KeyID, 64), clean(s.IP, 64), clean(s.RequestID, 128),
		clean(e.Target, 190), clean(e.Detail, 500), max(e.Times, 1))
	if err != nil {
		return fmt.Errorf("write audit event %s: %w", e.Action, err)
	}
	return nil
}

// clean makes a caller's text fit its column: valid, without control characters, at most n characters.
func clean(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if utf8.RuneCountInString(text) > n {
		return string([]rune(text)[:n])
	}
	return text
}

// Query selects events; zero fields do not limit.
type Query struct {
	Action Action
	Actor  string
	Before int64 // ids below; 0: the newest first page
	Limit  int
}

// List reads events, the newest first. Errors: the database's.
func (l *Log) List(ctx context.Context, q Query) ([]Event, error) {
	before := q.Before
	if before <= 0 {
		before = math.MaxInt64
	}
	text, args := l.q.Get("EventList"), []any{before}
	if q.Action != "" {
		text, args = text+"\n"+l.q.Get("EventAction"), append(args, string(q.Action))
	}
	if q.Actor != "" {
		text, args = text+"\n"+l.q.Get("EventActor"), append(args, q.Actor)
	}
	text, args = text+"\n"+l.q.Get("EventOrder"), append(args, q.Limit)
	var out []Event
	err := l.db.Read(ctx, func(ctx context.Context, db taskstate.Tx) error {
		var err error
		out, err = sqldb.Collect(ctx, db, func(rows *sql.Rows) (e Event, err error) {
			var at taskstate.DBTime
			s := &e.Source
			err = rows.Scan(&e.ID, &at, &e.Action, &s.Actor, &s.Role, &s.KeyID, &s.IP, &s.RequestID, &e.Target, &e.Detail, &e.Times)
			e.At = at.Time
			return e, err
		}, text, args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list audit events: %w", err)
	}
	return out, nil
}
