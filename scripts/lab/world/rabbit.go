package world

import (
	"context"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Copies looks at the queue of copies and returns their tasks, each with the status of its row; StatusNone: there is none.
func (w *World) Copies(ctx context.Context) (map[string]taskstate.Status, error) {
	look, err := w.copies()
	if err != nil {
		return nil, err
	}
	met := map[string]taskstate.Status{}
	return met, look(ctx, func(task string, row taskstate.Status) { met[task] = row })
}
