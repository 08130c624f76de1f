package rehydrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wiring/documents"
)

// publishTime bounds what adds the deliveries of a batch.
const publishTime = 5 * time.Second

// rounds goes round the queue of copies in mode rehydrate.
type rounds struct {
	p         *documents.Parts
	app       *app.App
	copies    *mirror.Mirror
	publisher ingestq.Publisher // nil: deliveries are events
	policy    taskstate.Policy
	wish      Wish
}

// did is what a round has done, or would do. Each task counts once, however many copies it has.
type did struct {
	met, delivered, ended, missing, restored int
	refused                                  []error // tasks that could not be restored
}

// mostHeld bounds the payloads of lost tasks that a round keeps until its end.
const mostHeld = 64 << 20

// restoreBatch is how many tasks are restored at once.
const restoreBatch = 500

// round goes round once and gives every QUEUED task a delivery. With --restore it makes the rows of lost tasks: at the end of the round, for
// the tasks of one document come in the order of their ids, whatever that of the copies. Those that would take too much memory until then it
// meets again in further rounds.
func (r *rounds) round(ctx context.Context) (did, error) {
	var out did
	done := map[string]bool{}
	lost := map[string][]string{} // ids of lost tasks by document
	var held []taskstate.Task
	room := cmp.Or(r.wish.room, mostHeld)
	err := r.copies.Visit(ctx, mirror.Visit{Look: r.wish.DryRun, Each: func(ctx context.Context, copies []mirror.Copy) error {
		var queued []string
		fresh := map[string]bool{}
		for _, c := range copies {
			id := c.Task.ID
			if done[id] || fresh[id] {
				continue
			}
			fresh[id] = true
			switch c.Status {
			case taskstate.StatusNone:
				key := document(c.Task)
				lost[key] = append(lost[key], id)
				out.missing++
				if size := len(c.Task.Payload); r.wish.Restore && size <= room {
					held, room = append(held, c.Task), room-size
				}
			case taskstate.StatusQueued:
				queued = append(queued, id)
			case taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusCancelled:
				out.ended++
			case taskstate.StatusRunning, taskstate.StatusRetrying, taskstate.StatusSuspended: // nothing is to be done
			}
		}
		n, err := r.deliver(ctx, queued)
		if err != nil {
			return err
		}
		out.delivered += n
		out.met += len(fresh)
		for id := range fresh {
			done[id] = true
		}
		return nil
	}})
	if err != nil || !r.wish.Restore || out.missing == 0 {
		return out, err
	}
	if r.wish.DryRun {
		out.restored = out.missing
		return out, nil
	}
	for _, ids := range lost {
		slices.Sort(ids)
	}
	slices.SortFunc(held, func(a, b taskstate.Task) int { return strings.Compare(a.ID, b.ID) })
	for before := -1; len(lost) > 0 && before != len(out.refused)+out.restored; { // each document's next task in each turn
		before = len(out.refused) + out.restored
		for some := range slices.Chunk(held, restoreBatch) {
			if err := r.restore(ctx, some, lost, &out); err != nil {
				return out, err
			}
		}
	}
	return out, r.meetAgain(ctx, lost, &out)
}

// document is what the order of lost tasks goes by: one without a document has none.
func document(t taskstate.Task) string {
	if t.Type != ingest.TypeDocument || t.DocumentID == "" {
		return t.ID
	}
	return t.DocumentID
}

// restore makes the rows of those tasks that are the next of their documents, one of each, and takes them out of lost.
func (r *rounds) restore(ctx context.Context, some []taskstate.Task, lost map[string][]string, out *did) error {
	var turn []taskstate.Task
	has := map[string]bool{} // a document's copies may come twice
	for _, t := range some {
		if ids := lost[document(t)]; len(ids) > 0 && ids[0] == t.ID && !has[t.ID] {
			has[t.ID] = true
			turn = append(turn, t)
		}
	}
	if len(turn) == 0 {
		return nil
	}
	restored := r.app.Restore(ctx, turn)
	crash.Point("rehydrator.after_restore")
	for i, err := range restored {
		switch {
		case err == nil:
			out.restored++
		case errors.Is(err, app.ErrNoCopy), errors.Is(err, ingest.ErrUploadExpired), errors.Is(err, tasks.ErrKeyReused):
			out.refused = append(out.refused, err)
		default:
			return err
		}
		key := document(turn[i])
		if lost[key] = lost[key][1:]; len(lost[key]) == 0 {
			delete(lost, key)
		}
	}
	return nil
}

// meetAgain goes round until every lost task has its row or was refused.
func (r *rounds) meetAgain(ctx context.Context, lost map[string][]string, out *did) error {
	for len(lost) > 0 {
		before := len(out.refused) + out.restored
		err := r.copies.Visit(ctx, mirror.Visit{Each: func(ctx context.Context, copies []mirror.Copy) error {
			met := make([]taskstate.Task, len(copies))
			for i, c := range copies {
				met[i] = c.Task
			}
			return r.restore(ctx, met, lost, out)
		}})
		if err != nil {
			return err
		}
		if before == len(out.refused)+out.restored {
			return r.gone(ctx, lost)
		}
	}
	return nil
}

// gone says what is wrong when copies of lost tasks were not met again; nil: their rows are there by now.
func (r *rounds) gone(ctx context.Context, lost map[string][]string) error {
	var all []taskstate.Task
	for _, ids := range lost {
		for _, id := range ids {
			all = append(all, taskstate.Task{ID: id})
		}
	}
	missing, err := r.app.Missing(ctx, all)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("the copies of %d tasks without a row were not met again, %s is one: somebody else holds them; run it again", len(missing), missing[0].ID)
	}
	return err
}

// deliver promises QUEUED tasks anew and adds their deliveries; it returns how many.
func (r *rounds) deliver(ctx context.Context, ids []string) (int, error) {
	if len(ids) == 0 || r.wish.DryRun {
		return len(ids), nil
	}
	outcomes, err := r.p.Store.Apply(ctx, taskstate.Batch{
		IDs: ids, Scope: taskstate.System(),
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.Renew(r.policy, m, t) }),
	})
	if err != nil {
		return 0, fmt.Errorf("renew %d promises: %w", len(ids), err)
	}
	crash.Point("rehydrator.after_renew")
	var renewed []taskstate.Task
	for _, o := range outcomes {
		if o.Err == nil && o.Answer == taskstate.AnswerApplied {
			renewed = append(renewed, o.After)
		}
	}
	if r.publisher == nil || len(renewed) == 0 {
		return len(renewed), nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	return len(renewed), taskrun.Publish(ctx, r.publisher, renewed)
}
