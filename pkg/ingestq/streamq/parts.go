package streamq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	lookEvery   = 5 * time.Second // at the topic's number of partitions, and for the single stream
	callTimeout = 3 * time.Second // of one command or pipeline that does not block
	lanes       = 16              // partitions that are worked on at once; their commands share pipelines
)

// ErrFewer says that fewer partitions are asked for than the topic has.
var ErrFewer = errors.New("partitions of a topic can only grow")

// part is one stream with the queue that works on it.
type part struct {
	*redisq.Queue
	number int
}

// all returns the partitions, and the single stream first if it is there. Error: ingestq.ErrUnavailable.
func (p *Publisher) all(ctx context.Context) ([]*part, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.look(ctx); err != nil && len(p.list) == 0 {
		return nil, err
	}
	if p.there {
		return append([]*part{p.old}, p.list...), nil
	}
	return p.list[:len(p.list):len(p.list)], nil
}

// cluster tells whether partitions lie on several nodes.
func (p *Publisher) cluster() bool { return Layout(p.client) == streammq.LayoutCluster }

// at is the queue of a part; nil when there is none.
func (p *Publisher) at(ctx context.Context, number int) (*part, error) {
	all, err := p.all(ctx)
	if i := slices.IndexFunc(all, func(one *part) bool { return one.number == number }); i >= 0 {
		return all[i], nil
	}
	return nil, err
}

// look makes the topic if it is missing, and sees whether it has grown and whether the single stream is there.
// A server that does not answer is asked again after the same time, unless nothing is known yet.
func (p *Publisher) look(ctx context.Context) error {
	now := p.now()
	if age := now.Sub(p.looked); !p.looked.IsZero() && age >= 0 && age < lookEvery {
		return nil
	}
	if len(p.list) > 0 {
		p.looked = now
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := makeTopic(ctx, p.mq, p.cfg.Partitions)
	if errors.Is(err, ErrFewer) {
		if !p.warned {
			p.log.ErrorContext(ctx, "streamq: the topic has more partitions than are asked for; all are used", slog.Any("error", err))
		}
		p.warned, err = true, nil
	}
	if err != nil {
		return err
	}
	there, err := hasGroup(ctx, p.client, p.cfg.StreamKey, p.cfg.Group)
	if err != nil {
		return err
	}
	for i := len(p.list); i < n; i++ {
		q := redisq.NewPart(p.client, p.cfg.part(i), redisq.Part{Member: p.member, Beats: beats, Codec: codec{i, p.now}}, p.log, p.now, p.metrics)
		p.list = append(p.list, &part{q, i})
	}
	p.there, p.looked = there, now
	return nil
}

// makeTopic makes the topic, or lets it grow, and returns how many partitions it has. Errors: ErrFewer beside that number,
// streammq.ErrLayout, ingestq.ErrUnavailable.
func makeTopic(ctx context.Context, mq *streammq.MQ, partitions int) (int, error) {
	n, err := mq.CreateTopic(ctx, streammq.Topic{Name: Topic, Partitions: partitions})
	if err != nil {
		return 0, ingestq.Failure(ctx, "make topic "+Topic, err)
	}
	if n > partitions {
		return n, fmt.Errorf("INGEST_STREAM_PARTITIONS is %d and topic %s has %d: %w; set it to %d", partitions, Topic, n, ErrFewer, n)
	}
	return n, nil
}

// hasGroup tells whether a stream has a group.
func hasGroup(ctx context.Context, client rueidis.Client, key, group string) (bool, error) {
	groups, err := stream.Groups(ctx, client, key)
	if answer, ok := rueidis.IsRedisErr(err); ok && !answer.IsClusterDown() && !answer.IsLoading() {
		return false, nil // no such key
	}
	if err != nil {
		return false, ingestq.Failure(ctx, "look at stream "+key, err)
	}
	return slices.ContainsFunc(groups, func(g stream.Group) bool { return g.Name == group }), nil
}

// each works on parts, some at once, and joins their errors.
func each(all []*part, do func(p *part) error) error {
	_, err := gather(all, func(p *part) (struct{}, error) { return struct{}{}, do(p) })
	return err
}

// gather is each for what returns something, which it returns in the order of the parts.
func gather[T any](all []*part, do func(p *part) (T, error)) ([]T, error) {
	got, errs := make([]T, len(all)), make([]error, len(all))
	turns := make(chan struct{}, lanes)
	var wg sync.WaitGroup
	for i, p := range all {
		turns <- struct{}{}
		wg.Go(func() {
			got[i], errs[i] = do(p)
			<-turns
		})
	}
	wg.Wait()
	return got, errors.Join(errs...)
}
