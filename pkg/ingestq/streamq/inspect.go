package streamq

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/streammq"
)

// Inspector implements ingestq.Inspector over all partitions and the single stream; it never heals, reads or acknowledges.
type Inspector struct {
	client rueidis.Client
	cfg    Config
}

var _ ingestq.Inspector = (*Inspector)(nil)

// NewInspector makes one on a client that the caller closes; cfg must be valid. It looks at all partitions that the topic
// may have, since what a topic has is lost with a server's memory while its streams are made again.
func NewInspector(client rueidis.Client, cfg Config) *Inspector { return &Inspector{client, cfg} }

// Look implements ingestq.Inspector.
func (i *Inspector) Look(ctx context.Context) (ingestq.State, error) {
	state, err := redisq.NewInspector(i.client, i.cfg.Config).Look(ctx)
	if err != nil {
		return state, err
	}
	for at := range state.Groups {
		state.Groups[at].Deleted = state.Deleted
	}
	state.First, state.Deleted = "", ""
	partitions, err := i.partitions(ctx)
	if err != nil {
		return state, err
	}
	for number := range partitions {
		one, err := redisq.NewPartInspector(i.client, i.cfg.part(number), codec{partition: number}).Look(ctx)
		if err != nil {
			return state, err
		}
		state.Length += one.Length
		for _, g := range one.Groups {
			g.Name, g.Deleted = g.Name+" on partition "+strconv.Itoa(number), one.Deleted
			state.Groups = append(state.Groups, g)
		}
		if !one.Watermark.IsZero() && (state.Watermark.IsZero() || one.Watermark.Before(state.Watermark)) {
			state.Watermark = one.Watermark
		}
		for _, p := range one.Pending {
			p.ID = idOf(number, p.ID)
			state.Pending = append(state.Pending, p)
		}
	}
	return state, nil
}

// partitions is the number that the topic has, or is to have.
func (i *Inspector) partitions(ctx context.Context) (int, error) {
	cfg := streammq.NewDefaultConfig()
	cfg.Layout = Layout(i.client)
	mq, err := streammq.New(i.client, cfg)
	if err != nil {
		return 0, err
	}
	n, err := mq.Partitions(ctx, Topic)
	if err != nil && !errors.Is(err, streammq.ErrUnknownTopic) {
		return 0, ingestq.Failure(ctx, "look at topic "+Topic, err)
	}
	return max(n, i.cfg.Partitions), nil
}

// DeadLetters implements ingestq.Inspector.
func (i *Inspector) DeadLetters(ctx context.Context, f func(ingestq.WrittenDeadLetter) error) error {
	return redisq.NewInspector(i.client, i.cfg.Config).DeadLetters(ctx, f)
}
