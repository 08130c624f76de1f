// Package orders is an example of a partitioned topic: orders of one customer run in their order, what fails for good
// becomes a dead letter that a group of its own looks at, and an operator replays it once its cause is cured.
package orders

import (
	"context"
	"fmt"

	"github.com/millweir/millweir/pkg/streammq"
)

// Topic of the orders, and the groups that consume them and their dead letters.
const (
	Topic   = "orders"
	Billing = "billing"
	Support = "support"
)

// Order is what a message carries, as JSON.
type Order struct {
	Customer string `json:"customer"`
	Number   int    `json:"number"`
}

// Publish adds orders; those of one customer have one partition. Errors: as of Producer.PublishBatch.
func Publish(ctx context.Context, q *streammq.MQ, orders ...Order) error {
	messages := make([]streammq.Message, len(orders))
	for i, o := range orders {
		payload, err := streammq.JSON{}.Encode(o)
		if err != nil {
			return err
		}
		messages[i] = streammq.Message{Key: o.Customer, Payload: payload}
	}
	_, err := q.NewProducer(nil).PublishBatch(ctx, Topic, messages)
	return err
}

// NewBilling makes a member of the group that bills orders.
func NewBilling(q *streammq.MQ, bill func(context.Context, Order) error) (*streammq.Subscriber, error) {
	return q.NewSubscriber(streammq.NewDefaultSubscriberConfig(Topic, Billing, streammq.Handle(streammq.JSON{},
		func(ctx context.Context, o Order, _ *streammq.Delivery) streammq.Result {
			return streammq.FromError(bill(ctx, o))
		})))
}

// NewSupport makes a member of the group that is told of dead letters.
func NewSupport(q *streammq.MQ, name string, tell func(streammq.Letter)) (*streammq.LetterSubscriber, error) {
	return q.Letters(Topic).NewSubscriber(streammq.NewDefaultLetterConfig(Support, name),
		func(_ context.Context, letter streammq.Letter) streammq.Result {
			tell(letter)
			return streammq.Success()
		})
}

// ReplayAll gives all dead letters to their partitions again, ten a second; it may be repeated after an error.
func ReplayAll(ctx context.Context, q *streammq.MQ) (int, error) {
	return q.Letters(Topic).ReplayAll(ctx, streammq.LetterQuery{Partition: -1}, 10, false)
}

// Report says in one line how the billing group stands.
func Report(ctx context.Context, q *streammq.MQ) (string, error) {
	admin := q.Admin(Topic)
	groups, err := admin.Groups(ctx)
	if err != nil {
		return "", err
	}
	owners, err := admin.Owners(ctx, Billing)
	if err != nil {
		return "", err
	}
	for _, g := range groups {
		if g.Name == Billing {
			return fmt.Sprintf("%d members, %d partitions unowned, %d entries not read, %d pending",
				g.Members, owners.Unowned, g.Lag, g.Pending), nil
		}
	}
	return "", fmt.Errorf("group %s: %w", Billing, streammq.ErrNotFound)
}
