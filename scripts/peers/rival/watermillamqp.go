package rival

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"
)

const (
	amqpTopic = "bench.watermill"
	amqpBytes = 600 // as those of `BENCH=mirror make bench`, which runs this
)

// PublishAMQP publishes messages by watermill-amqp into a quorum queue, each confirmed, and prints the seconds that took:
// URL MESSAGES CHANNELS.
func PublishAMQP(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 3 {
		return errors.New("want URL MESSAGES CHANNELS")
	}
	n, err := strconv.Atoi(args[1])
	channels, channelsErr := strconv.Atoi(args[2])
	if err := errors.Join(err, channelsErr); err != nil {
		return err
	}
	cfg := wmamqp.NewDurableQueueConfig(args[0])
	cfg.Publish.ConfirmDelivery, cfg.Publish.ChannelPoolSize = true, channels
	cfg.Queue.Arguments = map[string]any{"x-queue-type": "quorum"}
	pub, err := wmamqp.NewPublisher(cfg, watermill.NopLogger{})
	if err != nil {
		return err
	}
	sub, err := wmamqp.NewSubscriber(cfg, watermill.NopLogger{})
	if err == nil {
		err = errors.Join(sub.SubscribeInitialize(amqpTopic), sub.Close())
	}
	if err != nil {
		return errors.Join(err, pub.Close())
	}
	body := make([]byte, amqpBytes)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i := range channels {
		group.Go(func() error {
			for j := i; j < n && ctx.Err() == nil; j += channels {
				if err := pub.Publish(amqpTopic, message.NewMessage(watermill.NewShortUUID(), body)); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	err = group.Wait()
	_, printErr := fmt.Fprintln(stdout, time.Since(began).Seconds())
	return errors.Join(err, printErr, pub.Close())
}
