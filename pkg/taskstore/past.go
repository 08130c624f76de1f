package taskstore

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	pastCalls = 10_000 // of a status, that Past counts
	pastTook  = 100    // tasks, and calls, that Past looks at for how long they took
)

// Past implements taskstate.Reader. It reads up to pastCalls entries of an index for each of two statuses, and at most pastTook tasks,
// however many there are.
func (s *Store) Past(ctx context.Context, from, to time.Time) (p taskstate.Past, err error) {
	from, to = from.UTC().Truncate(time.Microsecond), to.UTC().Truncate(time.Microsecond)
	for status, n := range map[taskstate.Status]*int64{taskstate.StatusSucceeded: &p.Succeeded, taskstate.StatusDead: &p.Dead} {
		query := s.queries.Part("PastCalls", string(status), from, to, pastCalls)
		calls, err := sqldb.ReadRow(ctx, s, func(row sqldb.Scanner) (calls int64, err error) { return calls, row.Scan(&calls, n) }, query.Text, query.Args...)
		if err != nil {
			return p, fmt.Errorf("count what ended: %w", err)
		}
		p.AtLeast = p.AtLeast || calls >= pastCalls
	}
	if p.Succeeded == 0 {
		return p, nil
	}
	done, _, err := s.named(ctx, s.queries.Part("PastDone", from, to, pastTook))
	if err != nil {
		return p, err
	}
	p.Took, err = s.took(ctx, done[max(0, len(done)-pastTook):], sqldb.Part{})
	return p, err
}
