package call

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// The log has a row for each task that a call changed, and one for the call and each kind of change in it, with what all its
// tasks have in common. Both are written once, after the UPDATE and in its transaction.

// Head is what all rows of one call have in common.
type Head struct {
	ID    []byte // of the call
	Epoch int64
	At    time.Time
}

// Row is one change.
type Row struct {
	ID       string
	Whose    Whose
	From, To taskstate.Status
	Reason   taskstate.Reason
	Actor    string
	Message  string
	Attempts int
	Crashes  int
	Fence    int64
	Lease    time.Time
	Retry    time.Time
	Wake     time.Time
	Delivery string
	Code     string
}

// Silent is the reason of a call that changed no status: it has no rows in the log.
const Silent taskstate.Reason = "SILENT"

// kindOf orders rows by what their call's row says of all of them.
func kindOf(a, b Row) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(sqldb.Flag(a.Lease.IsZero()), sqldb.Flag(b.Lease.IsZero())))
}

// Insert writes the rows of a call, which it sorts.
func (s Store) Insert(ctx context.Context, tx taskstate.Tx, log []Row, head Head) error {
	slices.SortFunc(log, func(a, b Row) int { return cmp.Or(kindOf(a, b), cmp.Compare(a.ID, b.ID)) })
	for len(log) > 0 {
		n := 1
		for n < len(log) && kindOf(log[0], log[n]) == 0 {
			n++
		}
		if err := s.insertKind(ctx, tx, log[:n], head); err != nil {
			return fmt.Errorf("write transitions: %w", err)
		}
		log = log[n:]
	}
	return nil
}

// insertKind writes rows of one kind with their call's row.
func (s Store) insertKind(ctx context.Context, tx taskstate.Tx, log []Row, head Head) error {
	ids := make([]byte, 0, len(log)*len(uuid.UUID{}))
	for _, r := range log {
		u := uuid.MustParse(r.ID)
		ids = append(ids, u[:]...)
	}
	first := &log[0]
	args := []any{
		head.ID, orNull(string(first.From)), string(first.To), string(first.Reason), head.Epoch, first.Actor, first.Attempts, first.Crashes, first.Fence, timeOrNull(first.Lease), wakes(log, head.At), len(log), ids, head.At, owners(log),
	}
	if first.Reason == Silent {
		return sqldb.Write{Part: s.Queries.Part("Call", args...)}.Exec(ctx, tx)
	}
	dialect := sqldb.Dialect(s.Dialect())
	switch {
	case dialect == sqldb.Postgres:
		return sqldb.Write{Part: s.logArrays(log, args)}.Exec(ctx, tx)
	case dialect == sqldb.MySQL && len(log) <= fewRows:
		if err := (sqldb.Write{Part: s.Queries.Part("Call", args...)}).Exec(ctx, tx); err != nil {
			return err
		}
		return sqldb.Write{Part: s.Queries.Bind("Log", logValues(log, "LAST_INSERT_ID()"))}.Exec(ctx, tx)
	}
	res, err := tx.ExecContext(ctx, s.Queries.Get("Call"), args...)
	if err != nil {
		return err
	}
	no, err := res.LastInsertId()
	if err != nil {
		return err
	}
	if dialect == sqldb.MySQL {
		return sqldb.Write{Part: s.Queries.Bind("Log", logValues(log, strconv.FormatInt(no, 10)))}.Exec(ctx, tx)
	}
	return sqldb.Write{Part: s.Queries.Part("Log", no, logRows(log)), Rows: len(log)}.Exec(ctx, tx)
}

// fewRows are as many as go with their call's row, and name its number by a function: of more, the server reads a function for each row, which
// takes longer than a turn.
const fewRows = 16

// wakes is when a call wakes: with the first of its tasks, or at once to be counted; one that counts nothing need not.
func wakes(log []Row, now time.Time) any {
	var first time.Time
	for i := range log {
		if w := log[i].Wake; !w.IsZero() && (first.IsZero() || w.Before(first)) {
			first = w
		}
	}
	switch {
	case !first.IsZero():
		return first
	case log[0].Reason == Silent:
		return neverAt
	}
	return now
}

// own are what a row says for itself, by column: nil where it says nothing, or the same as its call, whose first row is given.
func (r *Row) own(first *Row) [9]any {
	out := [9]any{4: orNull(r.Message), 6: timeOrNull(r.Retry), 7: orNull(r.Delivery), 8: orNull(r.Code)}
	for i, n := range [3][2]int64{{int64(r.Attempts), int64(first.Attempts)}, {int64(r.Crashes), int64(first.Crashes)}, {r.Fence, first.Fence}} {
		if n[0] != n[1] {
			out[i] = n[0]
		}
	}
	if r.Actor != first.Actor {
		out[3] = r.Actor
	}
	if !r.Lease.Equal(first.Lease) {
		out[5] = timeOrNull(r.Lease)
	}
	return out
}

// ownColumns are the columns of own.
var ownColumns = [9]string{"attempt_count", "crash_count", "fence", "actor", "message", "lease_expires_at", "next_retry_at", "delivery", "error_code"}

// logRows are the rows as JSON; times as text in UTC.
func logRows(log []Row) string {
	rows := statement.NewJSON()
	for i := range log {
		r := &log[i]
		rows.Begin()
		rows.Field("id", &r.ID)
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
func (s Store) logArrays(log []Row, args []any) sqldb.Part {
	own := make([][len(ownColumns)]any, len(log))
	for i := range log {
		own[i] = log[i].own(&log[0])
	}
	rows := &statement.Arrays{}
	rows.IDs(len(log), func(i int) string { return log[i].ID })
	for n, name := range ownColumns {
		rows.Add(name, len(log), func(i int) any { return own[i][n] })
	}
	return s.Queries.Bind("Log", sqldb.Parts{"columns": rows.List(""), "values": rows.List("c."), "rows": rows.Rows()}, args...)
}

// logValues are the rows as MySQL takes them, of a call with this number, with the columns in which one of them says something: the server
// reads each word, and that was a third of its time.
func logValues(log []Row, no string) sqldb.Parts {
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
		rows.SQL("(0x" + strings.ReplaceAll(log[i].ID, "-", "") + "," + no)
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
