package fsck

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// astray are tasks whose copies are not as they must be, with what is wrong: no copy of an unfinished one, or one of an ended one.
type astray struct {
	bare, left map[string]string
}

func (a astray) none() bool { return len(a.bare)+len(a.left) == 0 }

// judgeCopies is I22. A mirror that has just begun, or whose queue was just emptied, mends by itself: what looks wrong is looked at once
// more after the time that it may take.
func (c *checker) judgeCopies(ctx context.Context) error {
	if c.e.Copies == nil {
		c.notJudged("needs RABBITMQ_URL, where the copies are", "I22")
		return nil
	}
	first, took, err := c.strayCopies(ctx, c.open, true)
	if err != nil || first.none() {
		return err
	}
	if !pause.For(ctx, c.o.Patience+took) {
		return ctx.Err()
	}
	again, _, err := c.strayCopies(ctx, slices.Sorted(maps.Keys(first.bare)), false)
	if err != nil {
		return err
	}
	for id, problem := range again.bare {
		c.bad("I22", id, "%s", problem)
	}
	for id, problem := range again.left {
		if first.left[id] != "" {
			c.bad("I22", id, "%s", problem)
		}
	}
	return nil
}

// strayCopies goes round the copies once and compares them with tasks that were unfinished, and says how long that took.
func (c *checker) strayCopies(ctx context.Context, open []string, count bool) (out astray, took time.Duration, err error) {
	out = astray{map[string]string{}, map[string]string{}}
	began, err := c.e.DB.Moment(ctx)
	if err != nil {
		return out, 0, err
	}
	met, over := map[string]bool{}, []string(nil)
	err = c.e.Copies(ctx, func(task string, row taskstate.Status) {
		if !met[task] && row.Terminal() {
			over = append(over, task)
		}
		met[task] = true
	})
	if err != nil {
		return out, 0, err
	}
	ended, err := c.e.DB.Moment(ctx)
	if err != nil {
		return out, 0, err
	}
	took = ended.Now.Sub(began.Now)
	if count {
		c.tally.Judged("I22", int64(len(met)+len(open)))
	}
	bare := slices.DeleteFunc(slices.Clone(open), func(id string) bool { return met[id] })
	for page := range slices.Chunk(bare, pageSize) {
		if err := c.judgeBare(ctx, page, ended.Now.Add(-c.o.Patience), out.bare); err != nil {
			return out, took, err
		}
	}
	for page := range slices.Chunk(over, pageSize) {
		rows, err := c.tasksByID(ctx, page...)
		if err != nil {
			return out, took, err
		}
		for _, t := range rows { // the mirror goes round too, which takes it as long
			if t.Status.Terminal() && t.UpdatedAt.Before(began.Now.Add(-c.o.Patience-took)) {
				out.left[t.ID] = fmt.Sprintf("it is %s since %s, and a copy of it is left", t.Status, stamp(t.UpdatedAt))
			}
		}
	}
	return out, took, nil
}

// judgeBare adds to bare those of tasks without a copy that were unfinished all the time since, and that no mirror says it failed with.
func (c *checker) judgeBare(ctx context.Context, ids []string, since time.Time, bare map[string]string) error {
	rows, err := c.tasksByID(ctx, ids...)
	if err != nil {
		return err
	}
	failed := map[string]bool{}
	err = c.each(ctx, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		failed[id] = true
		return err
	}, c.q.List("MirrorFailures", len(ids)), sqldb.Args(ids)...)
	if err != nil {
		return err
	}
	for _, t := range rows {
		if t.Status.Terminal() || failed[t.ID] {
			continue
		}
		replayed := false
		err := c.readLog(ctx, func(tr taskstate.Transition) {
			replayed = replayed || tr.From.Terminal() && tr.CreatedAt.After(since)
		}, "Logs", t.ID, t.ID)
		if err != nil {
			return err
		}
		if !replayed {
			bare[t.ID] = fmt.Sprintf("it is %s, of %s, and has neither a copy nor a row of mirror_failure that says why", t.Status, stamp(t.CreatedAt))
		}
	}
	return nil
}
