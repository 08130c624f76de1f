package kafkaq

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
)

// refusals are the errors by which a broker or the client names a record or our rights. All others say that the broker was
// not to be had, and heal by themselves.
var refusals = []error{
	sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidRecord,
	sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
}

// namesRecord tells a refusal that may mean another record of the same batch: a broker answers for the batch as a whole.
func namesRecord(err error) bool {
	return slices.ContainsFunc(refusals[:3], func(r error) bool { return errors.Is(err, r) })
}

// classify gives an error the form that outbox.Sender promises, but for unknown topics, which want fresh metadata.
func classify(err error) error {
	if slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }) {
		return &outbox.RefusedError{Err: err}
	}
	return err
}

// failure is ingestq.Failure; it names the remedy for a topic that is not there.
func failure(ctx context.Context, doing string, err error) error {
	if ctx.Err() == nil && !errors.Is(err, ingestq.ErrUnavailable) && errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		err = fmt.Errorf("%w: the topic does not exist (millweir kafka init makes it)", ingestq.ErrUnavailable)
	}
	return ingestq.Failure(ctx, doing, err)
}
