package call

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/internal/statement"
)

// Pace is taskstate.Reader's, of the tasks that a user, a knowledge base or both have, which named and perhaps find among the
// owners of calls, and filters among tasks. Tasks that have not ended are named by calls that wake, so those that have are
// hardly looked at.
func (s Store) Pace(ctx context.Context, of Whose, named, perhaps, filters sqldb.Part, ago time.Duration) (taskstate.Pace, error) {
	p := taskstate.Pace{Stages: map[taskstate.Stage]int64{}}
	waiting, running, err := s.named(ctx, s.Queries.Bind("OpenCalls", sqldb.Parts{"owners": perhaps}))
	if err != nil {
		return p, err
	}
	done, _, err := s.named(ctx, s.Queries.Bind("DoneCalls", sqldb.Parts{"owners": perhaps}, -ago.Microseconds(), tookCalls))
	if err != nil {
		return p, err
	}
	if p.Took, err = s.took(ctx, done[max(0, len(done)-mostTook):], filters); err != nil { // the newest ids
		return p, err
	}
	for chunk := range slices.Chunk(running, statement.MaxRows) {
		if err := s.stages(ctx, chunk, filters, p.Stages); err != nil {
			return p, err
		}
	}
	for chunk := range slices.Chunk(waiting, statement.MaxRows) { // from the oldest on
		if p.Oldest, err = s.oldest(ctx, chunk, filters); err != nil {
			return p, err
		}
		if !p.Oldest.IsZero() {
			break
		}
	}
	return p, s.ended(ctx, of, named, ago, &p)
}

// tookCalls is how many calls, and mostTook how many of their tasks, are looked at for how long tasks took.
const tookCalls, mostTook = 100, 1000

// took is how long those of some tasks took that are SUCCEEDED, the shortest first.
func (s Store) took(ctx context.Context, ids []uuid.UUID, filters sqldb.Part) (out []time.Duration, err error) {
	for chunk := range slices.Chunk(ids, statement.MaxRows) {
		query := s.among("TookAmong", chunk, filters)
		some, err := sqldb.ReadAll(ctx, s, "read how long tasks took", query.Text, query.Args, func(rows *sql.Rows) (time.Duration, error) {
			var from, to taskstate.DBTime
			err := rows.Scan(&from, &to)
			return max(to.Sub(from.Time), 0), err
		})
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	slices.Sort(out)
	return out, nil
}

// named returns the tasks that calls name, in the order of their ids, and those that may run.
func (s Store) named(ctx context.Context, query sqldb.Part) (all, running []uuid.UUID, err error) {
	err = s.Read(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		all, running = nil, nil
		return sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
			var status taskstate.Status
			var raw sql.RawBytes
			if err := rows.Scan(&status, &raw); err != nil {
				return err
			}
			return eachID(raw, func(id uuid.UUID) {
				all = append(all, id)
				if status == taskstate.StatusRunning {
					running = append(running, id)
				}
			})
		}, query.Text, query.Args...)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read which tasks calls name: %w", err)
	}
	return sorted(all), sorted(running), nil
}

func sorted(ids []uuid.UUID) []uuid.UUID {
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// among binds ids to a query.
func (s Store) among(name string, ids []uuid.UUID, filters sqldb.Part) sqldb.Part {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return s.Queries.Bind(name, sqldb.Parts{"list": sqldb.List(statement.RawIDs(s.Dialect(), texts)), "filters": filters})
}

// stages adds the stages of those of some tasks that run.
func (s Store) stages(ctx context.Context, ids []uuid.UUID, filters sqldb.Part, to map[taskstate.Stage]int64) error {
	query := s.among("StagesAmong", ids, filters)
	type row struct {
		stage taskstate.Stage
		n     int64
	}
	rows, err := sqldb.ReadAll(ctx, s, "count stages", query.Text, query.Args, func(rows *sql.Rows) (row, error) {
		var x row
		return x, rows.Scan(&x.stage, &x.n)
	})
	for _, x := range rows {
		to[x.stage] += x.n
	}
	return err
}

// oldest is when the oldest of some tasks that have not ended was made; zero: all have.
func (s Store) oldest(ctx context.Context, ids []uuid.UUID, filters sqldb.Part) (time.Time, error) {
	query := s.among("OldestAmong", ids, filters)
	at, err := sqldb.ReadRow(ctx, s, func(row sqldb.Scanner) (at taskstate.DBTime, err error) { return at, row.Scan(&at) }, query.Text, query.Args...)
	if err != nil {
		return time.Time{}, fmt.Errorf("oldest waiting task: %w", err)
	}
	return at.Time, nil
}

// ended counts what has ended by itself within a time, in the newest 10,000 calls.
func (s Store) ended(ctx context.Context, of Whose, named sqldb.Part, ago time.Duration, p *taskstate.Pace) error {
	query := s.Queries.Bind("EndedCalls", sqldb.Parts{"owners": named}, -ago.Microseconds())
	err := s.Read(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		p.Ended, p.Since = 0, 0
		return sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
			var at, now taskstate.DBTime
			var owners string
			var n int64
			if err := rows.Scan(&at, &n, &owners, &now); err != nil {
				return err
			}
			if of != (Whose{}) {
				n = 0
				EachOwned(owners, func(o Owned) {
					if of.Has(o.Whose) {
						n += o.N
					}
				})
			}
			if p.Ended += n; n > 0 {
				p.Since = max(p.Since, now.Sub(at.Time))
			}
			return nil
		}, query.Text, query.Args...)
	})
	if err != nil {
		return fmt.Errorf("count what has ended: %w", err)
	}
	return nil
}

const (
	pastCalls = 10_000 // of a status, that Past counts
	pastTook  = 100    // tasks, and calls, that Past looks at for how long they took
)

// Past is taskstate.Reader's. It reads up to pastCalls entries of an index for each of two statuses, and at most pastTook tasks,
// however many there are.
func (s Store) Past(ctx context.Context, from, to time.Time) (p taskstate.Past, err error) {
	from, to = from.UTC().Truncate(time.Microsecond), to.UTC().Truncate(time.Microsecond)
	for status, n := range map[taskstate.Status]*int64{taskstate.StatusSucceeded: &p.Succeeded, taskstate.StatusDead: &p.Dead} {
		query := s.Queries.Part("PastCalls", string(status), from, to, pastCalls)
		calls, err := sqldb.ReadRow(ctx, s, func(row sqldb.Scanner) (calls int64, err error) { return calls, row.Scan(&calls, n) }, query.Text, query.Args...)
		if err != nil {
			return p, fmt.Errorf("count what ended: %w", err)
		}
		p.AtLeast = p.AtLeast || calls >= pastCalls
	}
	if p.Succeeded == 0 {
		return p, nil
	}
	done, _, err := s.named(ctx, s.Queries.Part("PastDone", from, to, pastTook))
	if err != nil {
		return p, err
	}
	p.Took, err = s.took(ctx, done[max(0, len(done)-pastTook):], sqldb.Part{})
	return p, err
}
