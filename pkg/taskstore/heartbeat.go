package taskstore

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/call"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// Heartbeat implements taskstate.Store. It is one statement that asks about up to 500 beats, without a lock, and one that writes what
// they say. Neither is run inside a transaction, so a connection that dies is no riddle: it is repeated.
func (s *Store) Heartbeat(ctx context.Context, lease time.Duration, beats []taskstate.Beat) (lost []string, err error) {
	sorted := slices.SortedFunc(slices.Values(beats), func(x, y taskstate.Beat) int { return strings.Compare(x.TaskID, y.TaskID) })
	rows := make([][]any, len(sorted))
	for i, b := range sorted {
		rows[i] = s.beatRow(b, boundedMicros(lease))
	}
	var said [][]any
	for at := 0; at < len(sorted); at += statement.MaxRows {
		part := rows[at:min(at+statement.MaxRows, len(rows))]
		held, err := s.stillHeld(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, row := range part {
			switch b := sorted[at+i]; {
			case !held[b.TaskID]:
				lost = append(lost, b.TaskID)
			case b.Renew || b.Progress != nil:
				said = append(said, row)
			}
		}
	}
	for part := range slices.Chunk(said, statement.MaxRows) {
		query := s.withRows("Heartbeat", beatColumns, part)
		err := s.Beat(ctx, func(ctx context.Context, tx taskstate.Tx) error {
			_, err := tx.ExecContext(ctx, query.Text, query.Args...)
			return err
		})
		if err != nil {
			return lost, fmt.Errorf("write what %d heartbeats say: %w", len(part), err)
		}
	}
	return lost, nil
}

// stillHeld returns which beats find a row.
func (s *Store) stillHeld(ctx context.Context, rows [][]any) (map[string]bool, error) {
	query := s.withRows("HeartbeatHeld", beatColumns, rows)
	var ids []string
	err := s.Beat(ctx, func(ctx context.Context, tx taskstate.Tx) (err error) {
		ids, err = sqldb.Texts(ctx, tx, query.Text, query.Args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask about %d claims: %w", len(rows), err)
	}
	held := make(map[string]bool, len(ids))
	for _, id := range ids {
		held[id] = true
	}
	return held, nil
}

// beatColumns are what the statements Heartbeat and HeartbeatHeld read of a beat; the lease is in microseconds.
var beatColumns = []string{"id", "status", "fence", "timeline", "owner", "renew", "lease", "stage", "percent", "processed", "total"}

// beatRow has a beat's values of beatColumns. The timeline is text, for not every JSON reader keeps 63 bits. An owner of another
// timeline is lost whatever its number.
func (s *Store) beatRow(b taskstate.Beat, lease int64) []any {
	owner := int64(noWorker)
	if process, call, err := parseOwner(b.Owner); err == nil {
		if of, epoch := s.workers.get(process); of.no != noWorker && epoch == b.Token.Epoch {
			owner = of.no<<callBits | call
		}
	}
	row := []any{
		b.TaskID, string(b.Status), b.Token.Fence, strconv.FormatInt(b.Token.Epoch, 10), owner, sqldb.Flag(b.Renew), lease,
	}
	if p := b.Progress; p != nil {
		return append(row, string(cmp.Or(p.Stage, taskstate.StageNone)), p.Percent, p.Processed, p.Total)
	}
	return append(row, nil, nil, nil, nil) // progress stays
}

// WithClaims implements taskstate.Store. A COMMIT without an answer gives taskstate.ErrOutcomeUnknown:
// what f wrote has no name that the store could look for.
func (s *Store) WithClaims(ctx context.Context, claims []taskstate.ClaimedTask, f taskstate.ClaimsFunc) error {
	if len(claims) == 0 {
		return nil
	}
	what := fmt.Sprintf("hold %d tasks", len(claims))
	if len(claims) == 1 {
		what = "hold task " + claims[0].TaskID
	}
	work := func(ctx context.Context, tx taskstate.Tx) (bool, error) {
		m, held, err := s.hold(ctx, tx, claims)
		if err != nil {
			return false, err
		}
		return true, f(ctx, tx, m, held)
	}
	return s.Run(ctx, sqldb.Call{Name: "hold", Batch: len(claims), What: what, Work: work})
}

// hold locks the tasks of claims and tells which of them hold. taskstate.ErrLost when none does.
func (s *Store) hold(ctx context.Context, tx taskstate.Tx, claims []taskstate.ClaimedTask) (m taskstate.DBClock, held []bool, err error) {
	params := make([]any, 0, 2*len(claims))
	place := make(map[string]int, len(claims))
	for i, c := range claims {
		params = append(params, sqldb.RawID(s.Dialect(), c.TaskID), c.Token.Fence)
		place[c.TaskID] = i
	}
	held = make([]bool, len(claims))
	some := false
	err = sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
		var id string
		var now taskstate.DBTime
		err := rows.Scan(&id, &now, &m.Epoch)
		i, asked := place[id]
		if m.Now = now.Time; asked && claims[i].Token.Epoch == m.Epoch {
			held[i], some = true, true
		}
		return err
	}, s.queries.Any("Hold", len(claims)), params...)
	if err != nil {
		return m, nil, err
	}
	if !some {
		return m, nil, taskstate.ErrLost
	}
	return m, held, nil
}

// Held implements taskstate.Store. Every RUNNING task is named by a call of its holder that wakes before its lease ends: who looks
// further ahead than it renews its lease sees each of its claims before anybody else has to. So the process itself tidies its calls.
// What an earlier start of a process of that name has claimed is not its own.
func (s *Store) Held(ctx context.Context, process string, within time.Duration) (held []taskstate.HeldTask, err error) {
	row, _ := s.workers.get(process)
	for place, last := (call.Call{At: call.Beginning}), false; !last; {
		page, err := sqldb.ReadAll(ctx, s, "read which calls wake", s.queries.Get("WakingOf"), []any{place.At, place.At, place.No, actorOf(process), call.MostPage}, call.Scan)
		if err != nil {
			return nil, err
		}
		last = len(page) < call.MostPage
		if len(page) == 0 {
			break
		}
		until := page[0].Now.Add(within)
		if n := slices.IndexFunc(page, func(c call.Call) bool { return !c.At.Before(until) }); n >= 0 {
			page, last = page[:n], true
		}
		for group := range call.Groups(page) {
			place = group[len(group)-1]
			states, err := s.calls().States(ctx, taskstate.StatusRunning, group, until)
			if err != nil {
				return nil, err
			}
			for _, w := range states {
				if w.Owner>>callBits == row.no {
					held = append(held, taskstate.HeldTask{TaskID: w.ID, Fence: w.Fence, Owner: ownerOf(process, w.Owner)})
				}
			}
		}
	}
	slices.SortFunc(held, func(a, b taskstate.HeldTask) int { return cmp.Compare(a.TaskID, b.TaskID) })
	return slices.Compact(held), nil
}

// withRows puts a batch, rows of the values of columns, into the statement of that name: one JSON array, or on MySQL a SELECT of
// constants for each row, the statement named …Row. args follow.
func (s *Store) withRows(name string, columns []string, batch [][]any, args ...any) sqldb.Part {
	if !s.mysql() {
		objects := make([]map[string]any, len(batch))
		for i, row := range batch {
			objects[i] = make(map[string]any, len(columns))
			for n, column := range columns {
				objects[i][column] = row[n]
			}
		}
		array, _ := json.Marshal(objects) // texts and numbers are always JSON
		return s.queries.Part(name, append([]any{string(array)}, args...)...)
	}
	rows := &statement.Pieces{}
	for i, r := range batch {
		if i > 0 {
			rows.SQL(" UNION ALL ")
		}
		rows.SQL(s.queries.Get(name+"Row"), r...)
	}
	return s.queries.Bind(name, sqldb.Parts{"rows": rows.Part()}, args...)
}
