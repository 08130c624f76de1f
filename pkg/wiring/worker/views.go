package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/wiring/queue"
)

// The views of contract §5, and how many tasks one shows at most.
const (
	retryView     = "queue:retry"
	suspendedView = "queue:suspended"
	viewLimit     = 10_000
)

// viewShare is the part of the time that the views may take: one in so many.
const viewShare = 50

// views shows on Redis which tasks wait for their time and which for a person. They are made of the rows each time, so nothing keeps them
// but this; several processes write the same.
type views struct {
	to       queue.Viewer
	from     *tasks.Service
	interval time.Duration
	log      *slog.Logger
}

// Run writes them until ctx ends. The first failure of a row of them is logged.
func (v views) Run(ctx context.Context) error {
	broken := false
	for {
		began := time.Now()
		err := v.once(ctx)
		if err != nil && !broken && ctx.Err() == nil {
			v.log.WarnContext(ctx, "wiring: views of waiting tasks are not written", slog.Any("error", err))
		}
		broken = err != nil
		if !pause.For(ctx, max(v.interval, viewShare*time.Since(began))) {
			return nil
		}
	}
}

func (v views) once(ctx context.Context) error {
	waiting, err := v.from.Waiting(ctx, viewLimit)
	if err != nil {
		return err
	}
	if err := v.to.WriteView(ctx, retryView, waiting.Retry); err != nil {
		return err
	}
	return v.to.WriteView(ctx, suspendedView, waiting.Suspended)
}
