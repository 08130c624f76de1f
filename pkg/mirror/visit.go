package mirror

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Copy is a copy of a task that was taken.
type Copy struct {
	Task   taskstate.Task   // as the copy says
	Status taskstate.Status // of its row, read after the copy was taken; StatusNone: there is none
}

// Visit says what is done with the copies of one round.
type Visit struct {
	// Each is given copies, a batch at a time, before they are rotated. A task may come twice. Its error ends the round.
	Each func(ctx context.Context, copies []Copy) error
	// Look leaves the copies of ended tasks where they are, and makes no queue where there is none.
	Look bool
}

// Look goes round the queue once and names the task of each copy, with its row's status; a task may come twice. All copies stay, and a
// queue that is not there has none.
func (m *Mirror) Look(ctx context.Context, met func(task string, row taskstate.Status)) error {
	return m.Visit(ctx, Visit{Look: true, Each: func(_ context.Context, copies []Copy) error {
		for _, c := range copies {
			met(c.Task.ID, c.Status)
		}
		return nil
	}})
}

// Version returns which server holds the copies, and its version, as it tells them when a connection is made.
func (m *Mirror) Version(ctx context.Context) (product, version string, err error) {
	l, err := dial(ctx, m.cfg, m.d.Name)
	if err != nil {
		return "", "", err
	}
	defer l.close()
	product, _ = l.conn.Properties["product"].(string)
	version, _ = l.conn.Properties["version"].(string)
	return cmp.Or(product, "RabbitMQ"), version, nil
}

// Visit goes round the queue once, beside the mirror that acts: each copy that was there when it began is met. Copies of ended tasks are
// acknowledged, all others rotated. While the database is away it waits. An error ends it; what was met so far was met.
func (m *Mirror) Visit(ctx context.Context, v Visit) error {
	l, err := dial(ctx, m.cfg, m.d.Name)
	if err != nil {
		return err
	}
	defer l.close()
	var warning string
	if v.Look {
		if there, err := l.there(); err != nil || !there {
			return err
		}
	} else if warning, err = l.declare(); err != nil {
		return err
	}
	s, err := m.session(l, warning)
	if err != nil {
		return err
	}
	d := &drainer{session: s, visit: &visit{Visit: v, seen: map[uuid.UUID]bool{}}}
	if err := d.round(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

const (
	quiet     = time.Second           // of nothing new: the mirror that acts holds what it has taken for moments
	quietRest = 20 * time.Millisecond // after a batch with nothing new
)

// visit is a round under way. The mirror that acts takes and rotates copies at the same time, so neither an empty queue nor a copy of
// this round's own says that all were met: the round is over when for a moment as many were met again, one after the other, as there are.
type visit struct {
	Visit
	seen  map[uuid.UUID]bool
	began time.Time
	again int       // copies one after the other that were met before, are of younger tasks than the round, or nobody's
	newAt time.Time // when the last one came that was not
}

func (v *visit) each(ctx context.Context, all []taken, found map[uuid.UUID]taskstate.Status) error {
	var copies []Copy
	for _, d := range all {
		if d.envelope == nil {
			continue
		}
		c := Copy{Task: ingestq.TaskOf(d.envelope), Status: found[d.id]}
		c.Task.RequestHash, _ = d.Headers[hashHeader].(string)
		copies = append(copies, c)
	}
	if len(copies) == 0 {
		return nil
	}
	return v.Each(ctx, copies)
}

// over reports after a batch whether the round is, and how long to rest if it is not.
func (v *visit) over(batch []taken, now time.Time, ready func() (int, error)) (over bool, rest time.Duration, err error) {
	if v.newAt.IsZero() {
		v.began, v.newAt = now, now
	}
	for _, d := range batch {
		if d.envelope != nil && !v.seen[d.id] && madeAt(d.id).Before(v.began) {
			v.again, v.newAt = -1, now
		}
		v.again++
		v.seen[d.id] = true
	}
	if len(batch) > 0 && v.again < len(batch) {
		return false, 0, nil
	}
	n, err := ready()
	return err == nil && v.again >= n && now.Sub(v.newAt) >= quiet, quietRest, err
}
