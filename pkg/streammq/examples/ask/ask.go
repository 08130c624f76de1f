// Package ask is an example of request and reply: a price is asked for over a topic, and whichever member of the group
// owns its partition answers.
package ask

import (
	"context"
	"fmt"

	"github.com/millweir/millweir/pkg/streammq"
)

// Topic of the requests, and Group of those who answer.
const (
	Topic = "prices"
	Group = "price-list"
)

// Question is a request.
type Question struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

// Answer is its reply.
type Answer struct {
	Cents int `json:"cents"`
}

// NewResponder makes a member that answers from a list of prices in cents. What is not on the list is an error for good;
// every other error would be another attempt, as long as the requester waits.
func NewResponder(q *streammq.MQ, list map[string]int) (*streammq.Subscriber, error) {
	answer := func(_ context.Context, asked Question, _ *streammq.Delivery) (Answer, error) {
		cents, ok := list[asked.Item]
		if !ok {
			return Answer{}, fmt.Errorf("%w: no price of %q", streammq.ErrPermanent, asked.Item)
		}
		return Answer{Cents: cents * asked.Count}, nil
	}
	c := streammq.NewDefaultSubscriberConfig(Topic, Group, streammq.Respond(streammq.JSON{}, answer))
	c.DeadLetters = streammq.DeadLetterDrop // the asker was told
	return q.NewSubscriber(c)
}

// Ask waits for the price until ctx ends. Errors: streammq.ErrRemote, streammq.ErrNoReply, and as of Requester.Request.
func Ask(ctx context.Context, r *streammq.Requester, item string, count int) (int, error) {
	answer, err := streammq.RequestAs[Question, Answer](ctx, r, streammq.JSON{}, Topic, Question{item, count}, streammq.Message{Key: item})
	return answer.Cents, err
}
