package cli

import (
	"cmp"
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/wire"
)

const workersPath = "/internal/workers"

// workers shows and drains processes that claim tasks.
func workers(a *App) *cobra.Command {
	return Group("workers", "processes that run tasks", workersList(a),
		workersStep(a, "drain", true, "let processes take no new task; they end those that they have and stay"),
		workersStep(a, "resume", false, "let processes take tasks again"))
}

func workersList(a *App) *cobra.Command {
	var watch bool
	c := Verb("list [--watch]", "list processes that lived in the last hour", Needs(), func(ctx context.Context, _ []string) error {
		return a.shownAgain(ctx, watch, func() error {
			var all wire.List[wire.Worker]
			if err := a.Gateway().Get(ctx, workersPath, &all); err != nil {
				return err
			}
			return Table(a, all.Items, "WORKER\tSTATE\tRUNNING\tSLOTS\tLEASE UNTIL\tSTARTED", workerRow)
		})
	})
	watchFlag(c, &watch)
	return c
}

// workerRow is a process in a table.
func workerRow(w wire.Worker) []any {
	running, slots := strconv.Itoa(w.Running), "-"
	if w.More {
		running += "+"
	}
	if w.Slots != nil {
		slots = strconv.Itoa(*w.Slots)
	}
	return []any{Clean(w.Name), workerState(w), running, slots, day(wire.NullTime(w.LeaseUntil)), day(wire.NullTime(w.StartedAt))}
}

// workerState is what a process does, in one word or two.
func workerState(w wire.Worker) string {
	switch {
	case !w.DrainedAt.Missing():
		return "drained"
	case !w.DrainAt.Missing():
		return "draining"
	case w.Alive:
		return "alive"
	case w.Running > 0:
		return "lease ended"
	}
	return "gone"
}

// asked is a process that was told whether to take tasks.
type asked struct {
	Name   string `json:"name"`
	Drains bool   `json:"drains"`
}

func workersStep(a *App, step string, drains bool, about string) *cobra.Command {
	return Verb(step+" WORKER…", about, NeedsSome("worker"), func(ctx context.Context, names []string) error {
		done, failed := forEach(names, step, func(name string) (asked, error) {
			return asked{name, drains}, a.Gateway().Post(ctx, workersPath+"/"+url.PathEscape(name)+"/"+step, nil, nil)
		})
		return cmp.Or(failed, Table(a, done, "WORKER\tDRAINS", func(w asked) []any { return []any{Clean(w.Name), w.Drains} }))
	})
}
