package taskrun

import (
	"context"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/delivery"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Outbox reads and moves the events of rows. *outbox.Reader implements it.
type Outbox = delivery.Outbox

// Publish adds one delivery per task: the fast path after a commit.
// An error loses nothing: the sweep for lost deliveries adds what was not added (design D5).
func Publish(ctx context.Context, p ingestq.Publisher, tasks []taskstate.Task) error {
	return delivery.Publish(ctx, p, tasks)
}
