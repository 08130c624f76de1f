package taskstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// The log has a row for each task that a call changed, and one for the call and each kind of change in it, with what all its
// tasks have in common. Both are written once, after the UPDATE and in its transaction.

// logCall is what all rows of one call have in common.
type logCall struct {
	id    []byte // of the call
	epoch int64
	at    time.Time
}

// logRow is one change.
type logRow struct {
	id       string
	whose    whose
	from, to taskstate.Status
	reason   taskstate.Reason
	actor    string
	message  string
	attempts int
	crashes  int
	fence    int64
	lease    time.Time
	retry    time.Time
	wake     time.Time
	delivery string
	code     string
}

// silent is the reason of a call that changed no status: it has no rows in the log.
const silent taskstate.Reason = "SILENT"

// logOf is the row of a change that was written.
func logOf(before *task, c *change, w written) logRow {
	r := logRow{
		id: c.TaskID, whose: whoseIs(before), from: c.From, to: c.To, reason: c.Reason, actor: c.Actor.String(), message: c.Message,
		attempts: c.AttemptCount, crashes: c.CrashCount, fence: c.NewFence, retry: w.time(c.NextRetry, before.NextRetryAt), code: c.ErrorCode,
		wake: w.time(c.Wake, before.WakeAt),
	}
	if c.Silent {
		r.reason = silent
	}
	if c.To == taskstate.StatusRunning {
		r.lease, r.delivery = r.wake, c.Delivery
	}
	return r
}

// kindOf orders rows by what their call's row says of all of them.
func kindOf(a, b logRow) int {
	return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.reason, b.reason),
		cmp.Compare(sqldb.Flag(a.lease.IsZero()), sqldb.Flag(b.lease.IsZero())))
}

// insertLog writes the rows of a call, which it sorts.
func (s *Store) insertLog(ctx context.Context, tx taskstate.Tx, log []logRow, call logCall) error {
	slices.SortFunc(log, func(a, b logRow) int { return cmp.Or(kindOf(a, b), cmp.Compare(a.id, b.id)) })
	for len(log) > 0 {
		n := 1
		for n < len(log) && kindOf(log[0], log[n]) == 0 {
			n++
		}
		if err := s.insertKind(ctx, tx, log[:n], call); err != nil {
			return fmt.Errorf("write transitions: %w", err)
		}
		log = log[n:]
	}
	return nil
}

// insertKind writes rows of one kind with their call's row.
func (s *Store) insertKind(ctx context.Context, tx taskstate.Tx, log []logRow, call logCall) error {
	ids := make([]byte, 0, len(log)*len(uuid.UUID{}))
	for _, r := range log {
		u := uuid.MustParse(r.id)
		ids = append(ids, u[:]...)
	}
	first := &log[0]
	args := []any{
		call.id, orNull(string(first.from)), string(first.to), string(first.reason), call.epoch, first.actor, first.attempts, first.crashes, first.fence, timeOrNull(first.lease), wakes(log, call.at), len(log), ids, call.at, owners(log),
	}
	if first.reason == silent {
		_, err := tx.ExecContext(ctx, s.queries.Get("Call"), args...)
		return err
	}
	if s.postgres() {
		return execAll(ctx, tx, len(log), s.logArrays(log, args))
	}
	res, err := tx.ExecContext(ctx, s.queries.Get("Call"), args...)
	if err != nil {
		return err
	}
	no, err := res.LastInsertId()
	if err != nil {
		return err
	}
	if s.mysql() {
		return execAll(ctx, tx, len(log), s.queries.Bind("Log", logValues(log, no)))
	}
	return execAll(ctx, tx, len(log), s.queries.Part("Log", no, logRows(log)))
}

// wakes is when a call wakes: with the first of its tasks, or at once to be counted; one that counts nothing need not.
func wakes(log []logRow, now time.Time) any {
	var first time.Time
	for i := range log {
		if w := log[i].wake; !w.IsZero() && (first.IsZero() || w.Before(first)) {
			first = w
		}
	}
	switch {
	case !first.IsZero():
		return first
	case log[0].reason == silent:
		return neverAt
	}
	return now
}

// own are what a row says for itself, by column: nil where it says nothing, or the same as its call, whose first row is given.
func (r *logRow) own(first *logRow) [9]any {
	out := [9]any{4: orNull(r.message), 6: timeOrNull(r.retry), 7: orNull(r.delivery), 8: orNull(r.code)}
	for i, n := range [3][2]int64{{int64(r.attempts), int64(first.attempts)}, {int64(r.crashes), int64(first.crashes)}, {r.fence, first.fence}} {
		if n[0] != n[1] {
			out[i] = n[0]
		}
	}
	if r.actor != first.actor {
		out[3] = r.actor
	}
	if !r.lease.Equal(first.lease) {
		out[5] = timeOrNull(r.lease)
	}
	return out
}

// ownColumns are the columns of own.
var ownColumns = [9]string{"attempt_count", "crash_count", "fence", "actor", "message", "lease_expires_at", "next_retry_at", "delivery", "error_code"}

// logRows are the rows as JSON; times as text in UTC.
func logRows(log []logRow) string {
	rows := statement.NewJSON()
	for i := range log {
		r := &log[i]
		rows.Begin()
		rows.Field("id", &r.id)
		for n, v := range r.own(&log[0]) {
			switch v := v.(type) {
			case int64:
				rows.Field(ownColumns[n], &v)
			case string:
				rows.Field(ownColumns[n], &v)
			case time.Time:
				text := v.UTC().Format(taskstate.DBTimeLayout)
				rows.Field(ownColumns[n], &text)
			}
		}
	}
	return rows.String()
}

// logArrays is the INSERT of a call and its rows.
func (s *Store) logArrays(log []logRow, args []any) sqldb.Part {
	own := make([][len(ownColumns)]any, len(log))
	for i := range log {
		own[i] = log[i].own(&log[0])
	}
	rows := &statement.Arrays{}
	rows.IDs(len(log), func(i int) string { return log[i].id })
	for n, name := range ownColumns {
		rows.Add(name, len(log), func(i int) any { return own[i][n] })
	}
	return s.queries.Bind("Log", sqldb.Parts{"columns": rows.List(""), "values": rows.List("c."), "rows": rows.Rows()}, args...)
}

// logValues are the rows as MySQL takes them, with the columns in which one of them says something: the server reads each word,
// and that was a third of its time.
func logValues(log []logRow, no int64) sqldb.Parts {
	own := make([][len(ownColumns)]any, len(log))
	columns, rows := &statement.Pieces{}, &statement.Pieces{}
	var says [len(ownColumns)]bool
	for i := range log {
		own[i] = log[i].own(&log[0])
		for n, v := range own[i] {
			says[n] = says[n] || v != nil
		}
	}
	for n, name := range ownColumns {
		if says[n] {
			columns.SQL(", " + name)
		}
	}
	for i := range log {
		if i > 0 {
			rows.Text.WriteByte(',')
		}
		fmt.Fprintf(&rows.Text, "(0x%s,%d", strings.ReplaceAll(log[i].id, "-", ""), no)
		for n, v := range own[i] {
			switch {
			case !says[n]:
			case v == nil:
				rows.SQL(",NULL")
			default:
				rows.SQL(",?", v)
			}
		}
		rows.Text.WriteByte(')')
	}
	return sqldb.Parts{"columns": columns.Part(), "rows": rows.Part()}
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}
