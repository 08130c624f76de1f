package mq

import (
	"context"
	"errors"
	"time"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/scripts/lab/await"
)

// pollWait is the longest wait of one Poll, far beyond what it needs here.
const pollWait = 10 * time.Second

// poll runs a consumer in a group of its own, from its start until the last message is acknowledged.
func (r *mqRig) poll(ctx context.Context) error {
	c, err := r.mq.NewConsumer(streammq.NewDefaultConsumerConfig(mqTopic, "pollers"))
	if err != nil {
		return err
	}
	stop := await.Beside(ctx, c.Run)
	for n := 0; n < mqMessages && err == nil; {
		var some []*streammq.Delivery
		if some, err = c.Poll(ctx, mqBatch, pollWait); err == nil {
			_, err = c.Ack(ctx, some...)
		}
		n += len(some)
	}
	return errors.Join(err, stop())
}
