package mirror

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Unfinished gives every unfinished task to each, some at a time, in the order of their ids: what a mirror would copy. Tasks that end
// meanwhile may come or not. Its error ends it.
func Unfinished(ctx context.Context, db taskstate.Database, each func(tasks []taskstate.Task) error) error {
	r := newRows(db)
	for after, more := uuid.Nil, true; more; {
		page, err := r.page(ctx, after, pageRows)
		if err != nil {
			return err
		}
		more = len(page) == pageRows
		var ids []uuid.UUID
		for _, s := range page {
			if after = s.id; unfinished(s.status) {
				ids = append(ids, s.id)
			}
		}
		for chunk := range slices.Chunk(ids, mostRows) {
			tasks, err := r.tasks(ctx, chunk)
			if err != nil {
				return err
			}
			if err := each(tasks); err != nil {
				return err
			}
		}
	}
	return nil
}
