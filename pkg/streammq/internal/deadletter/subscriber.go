package deadletter

import (
	"context"
	"errors"
	"sync"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/dlq"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// LetterHandler runs one dead letter. Success ends it for the group; Retry and an error bring it again later; whatever
// its result, the dead letter stays listed until it is deleted, so that a handler that gives up loses nothing.
type LetterHandler func(ctx context.Context, letter wire.Letter) model.Result

// LetterSubscriber consumes dead letters for one group, as a single stream is consumed: any number of members, each
// letter to one of them, at least once.
type LetterSubscriber struct {
	letters *Letters
	cfg     consume.SubscriberConfig
}

// NewSubscriber makes a subscriber of these dead letters from a NewDefaultLetterConfig; its StreamKey and Handler are set
// here. Errors: those of SubscriberConfig.Validate.
func (l *Letters) NewSubscriber(cfg consume.SubscriberConfig, run LetterHandler) (*LetterSubscriber, error) {
	cfg.StreamKey, cfg.Handler = "letters", nil // the real key may have braces
	if run != nil {
		cfg.Handler = func(ctx context.Context, d *model.Delivery) model.Result {
			result := run(ctx, l.decodeFields(d.ID, d.Fields))
			if result.Outcome == model.OutcomeDeadLetter {
				result.Outcome = model.OutcomeFail
			}
			return result
		}
	}
	cfg.MaxUnanswered, cfg.DeadLetters, cfg.DeadLetterStream = 0, model.DeadLetterDrop, "" // there are no dead letters of dead letters
	cfg.Retention, cfg.RetryMode = model.Retention{}, model.RetryInPlace
	return &LetterSubscriber{letters: l, cfg: cfg}, cfg.Validate()
}

// Run consumes until ctx ends; on a cluster the dead letters of each partition, new ones too as the topic grows.
// Errors: ErrUnknownTopic when there is no such topic, or it was deleted; ErrStuck.
func (s *LetterSubscriber) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	var mu sync.Mutex
	var all error
	failed := func(err error) {
		mu.Lock()
		all = errors.Join(all, err)
		mu.Unlock()
		end(err)
	}
	started := 0
	grow := func(ctx context.Context) {
		homes, err := s.homes(ctx)
		switch {
		case model.IsPassing(err), ctx.Err() != nil:
			return
		case err != nil:
			failed(err)
			return
		}
		for ; started < len(homes); started++ {
			cfg := s.cfg
			cfg.StreamKey = homes[started].Dlq
			one := consume.NewOpaque(s.letters.in.Mq, cfg, s.topic())
			running.Go(func() {
				if err := one.Run(ctx); err != nil {
					failed(err)
				}
			})
		}
	}
	core.Every(ctx, &running, s.cfg.Rebalance, grow)
	<-ctx.Done()
	running.Wait()
	end(nil)
	return all
}

// homes are the sources whose letters lie apart. Errors: those of MQ.Partitions.
func (s *LetterSubscriber) homes(ctx context.Context) ([]dlq.LetterHome, error) {
	if s.topic() != "" {
		if _, err := s.letters.in.Mq.Topics.Partitions(ctx, s.letters.in.Topic); err != nil {
			return nil, err
		}
	}
	return s.letters.in.Homes(ctx, -1)
}

// topic is whose letters these are; "" when they are not a topic's.
func (s *LetterSubscriber) topic() string {
	if s.letters.in.Single || s.letters.in.Named != "" {
		return ""
	}
	return s.letters.in.Topic
}

// decodeFields is a letter out of an entry's fields, whatever was wrong with the message in it.
func (l *Letters) decodeFields(id string, flat []string) wire.Letter {
	letter := wire.DecodeDeadLetter(id, wire.Mapped(flat))
	if l.in.Named == "" {
		letter.Topic, letter.Single = l.in.Topic, l.in.Single
	}
	return letter
}
