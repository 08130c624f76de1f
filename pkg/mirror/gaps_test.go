package mirror

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// numbered is a database of calls that have numbers only.
type numbered struct {
	taskstate.Database
	there []int64
	now   time.Time
	spans int // of the last statement
}

func (n *numbered) CallNumbers(_ context.Context, spans []taskstate.Span, _ int) (out []int64, err error) {
	n.spans = len(spans)
	slices.Sort(n.there)
	for _, no := range n.there {
		for _, one := range spans {
			if one.First <= no && no <= one.Last {
				out = append(out, no)
			}
		}
	}
	return out, nil
}

func (n *numbered) Moment(context.Context) (taskstate.DBClock, error) {
	return taskstate.DBClock{Now: n.now}, nil
}

// A gap is looked at until it is as old as a transaction can be; what appears in it leaves it.
func TestGapsAreLookedAtUntilTheyAreOld(t *testing.T) {
	t.Parallel()
	db := &numbered{}
	a := &auditor{Mirror: &Mirror{d: Deps{DB: db}}, next: 5}
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	look := func(after time.Duration, calls ...int64) []int64 {
		var changes []taskstate.Transition
		for _, no := range calls {
			a.saw(no)
			changes = append(changes, taskstate.Transition{ID: no, CreatedAt: at.Add(after)})
		}
		db.there = append(db.there, calls...)
		db.now = at.Add(after)
		late, looked, err := a.late(t.Context())
		require.NoError(t, err)
		a.age(changes, looked)
		return late
	}
	require.Empty(t, look(0, 5, 6, 10))
	require.EqualValues(t, 7, a.from())
	db.there = append(db.there, 8)
	require.Equal(t, []int64{8}, look(time.Second))
	require.EqualValues(t, 7, a.from())
	db.there = append(db.there, 7)
	require.Equal(t, []int64{7}, look(gapTime, 12))
	require.EqualValues(t, 9, a.from())
	require.Empty(t, look(gapTime+time.Second))
	require.EqualValues(t, 11, a.from(), "9 was missing for too long, and 11 is not")
	require.Empty(t, look(2*gapTime+time.Second))
	require.EqualValues(t, 13, a.from())

	// A server of three gives every third number.
	var calls []int64
	for no := int64(100); no < 4000; no += 3 {
		calls = append(calls, no)
	}
	require.Empty(t, look(3*gapTime, calls...))
	require.LessOrEqual(t, db.spans, auditSpans)
	db.there = append(db.there, 101, 3000)
	require.Equal(t, []int64{101, 3000}, look(3*gapTime))
	require.Empty(t, look(4*gapTime+time.Second))
	require.Empty(t, a.gaps)
}
