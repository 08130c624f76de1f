// Package jointq joins two queues to one, each with a stream and a group of its own, so that tasks of one type do not wait behind those
// of another: documents lie in the first, workflow tasks in the second (contract §5).
//
// A delivery of the second queue has "/" in front of its id, by which whoever acknowledges or copies it finds its queue. The runner knows
// nothing of this: the table drives (design D4), and the smaller read watermark counts for both (design D5).
//
// A Read waits for both queues at once. The one that brings nothing goes on waiting when Read returns, for at most 250 ms, since a
// read under way is never abandoned. What it still brings is held for the next Read; if none comes within 100 ms, or the process
// stops, it goes back to its queue by Requeue. If the process dies it is pending with a dead member, as any delivery that
// was read and not claimed.
package jointq

import (
	"context"
	"errors"
	"strings"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// The two queues.
const (
	first = iota
	second
	number
)

// mark stands before the ids of the second queue.
const mark = "/"

// idOf is the id of a delivery by its queue's own.
func idOf(queue int, id string) string {
	if queue == second && id != "" {
		return mark + id
	}
	return id
}

// splitID is the opposite of idOf.
func splitID(id string) (queue int, own string) {
	if own, marked := strings.CutPrefix(id, mark); marked {
		return second, own
	}
	return first, id
}

// Publishing is what a publisher of one queue can do.
type Publishing interface {
	ingestq.Publisher
	ingestq.Described
	ingestq.Locator
	// StreamLength counts entries, read or not.
	StreamLength(ctx context.Context) (int64, error)
}

// Publisher adds deliveries to two queues and is a member of neither. It is safe for concurrent use.
type Publisher struct {
	queues [number]Publishing
	second func(taskType string) bool
}

var _ ingestq.Publisher = (*Publisher)(nil)

// NewPublisher joins two publishers; second tells which types of task the second one carries.
func NewPublisher(one, two Publishing, second func(taskType string) bool) *Publisher {
	return &Publisher{[number]Publishing{one, two}, second}
}

// queueOf is the queue that carries a type of task.
func (p *Publisher) queueOf(taskType string) int {
	if p.second(taskType) {
		return second
	}
	return first
}

// Locate implements ingestq.Locator.
func (p *Publisher) Locate(ctx context.Context, id string) (*ingestq.Place, error) {
	queue, own := splitID(id)
	return p.queues[queue].Locate(ctx, own)
}

// Destination implements ingestq.Described.
func (p *Publisher) Destination(taskType string) (system, name string) {
	return p.queues[p.queueOf(taskType)].Destination(taskType)
}

// Publish implements ingestq.Publisher.
func (p *Publisher) Publish(ctx context.Context, envelopes []*pb.TaskEnvelope) ([]string, error) {
	var groups [number][]*pb.TaskEnvelope
	var places [number][]int
	for i, e := range envelopes {
		at := p.queueOf(e.GetType())
		groups[at], places[at] = append(groups[at], e), append(places[at], i)
	}
	ids := make([]string, len(envelopes))
	var errs []error
	for at, some := range groups {
		if len(some) == 0 {
			continue
		}
		got, err := p.queues[at].Publish(ctx, some)
		for i, id := range got {
			ids[places[at][i]] = idOf(at, id)
		}
		errs = append(errs, err)
	}
	return ids, errors.Join(errs...)
}

// StreamLength counts the entries of both queues, read or not.
func (p *Publisher) StreamLength(ctx context.Context) (int64, error) {
	total := int64(0)
	for _, q := range p.queues {
		n, err := q.StreamLength(ctx)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Inspector implements ingestq.Inspector over both queues.
type Inspector struct{ queues [number]ingestq.Inspector }

var _ ingestq.Inspector = (*Inspector)(nil)

// NewInspector joins two inspectors. The first one's dead letters are those of both: they have one dead letter queue.
func NewInspector(one, two ingestq.Inspector) *Inspector {
	return &Inspector{[number]ingestq.Inspector{one, two}}
}

// Look implements ingestq.Inspector.
func (i *Inspector) Look(ctx context.Context) (ingestq.State, error) {
	var all ingestq.State
	for at, q := range i.queues {
		one, err := q.Look(ctx)
		if err != nil {
			return all, err
		}
		all.Length += one.Length
		for _, g := range one.Groups {
			if g.Deleted == "" {
				g.Deleted = one.Deleted
			}
			all.Groups = append(all.Groups, g)
		}
		for _, p := range one.Pending {
			p.ID = idOf(at, p.ID)
			all.Pending = append(all.Pending, p)
		}
		if !one.Watermark.IsZero() && (all.Watermark.IsZero() || one.Watermark.Before(all.Watermark)) {
			all.Watermark = one.Watermark
		}
	}
	return all, nil
}

// DeadLetters implements ingestq.Inspector.
func (i *Inspector) DeadLetters(ctx context.Context, f func(ingestq.WrittenDeadLetter) error) error {
	return i.queues[first].DeadLetters(ctx, f)
}

// grouped are ids by their queue, without their marks.
func grouped(ids []string) (groups [number][]string) {
	for _, id := range ids {
		at, own := splitID(id)
		groups[at] = append(groups[at], own)
	}
	return groups
}

// withIDs are deliveries as the joint queue names them.
func withIDs(queue int, ds []ingestq.Delivery) []ingestq.Delivery {
	for i := range ds {
		ds[i].ID = idOf(queue, ds[i].ID)
	}
	return ds
}
