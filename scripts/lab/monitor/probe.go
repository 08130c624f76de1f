package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/scripts/lab/await"
)

const (
	probeTopic      = "lab-probe"
	probeGroup      = "probe"
	probePartitions = 2
	probeMembers    = 2
	probeKeys       = 8
	probePause      = 25 * time.Millisecond // between two messages
	probeLife       = 3 * time.Second       // of a member; every second one ends without a word
	probeFails      = 13                    // every so manieth run fails and is run again
	probeLease      = 2 * time.Second
)

// Probe is a topic of its own beside the product's, on the same Redis and under the same faults: keyed messages with a
// status, members that leave and die. The checker judges leases, order and status by what it writes down.
type Probe struct {
	url    string
	log    *MoveLog
	runs   atomic.Int64
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// StartProbe begins; stop it.
func StartProbe(url string, log *MoveLog) *Probe {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Probe{url: url, log: log, cancel: cancel}
	p.all.Go(func() { p.publish(ctx) })
	for range probeMembers {
		p.all.Go(func() {
			for orderly := true; ctx.Err() == nil; orderly = !orderly {
				_ = p.live(ctx, orderly) // Redis is away: again
				await.Pause(ctx, probePause)
			}
		})
	}
	return p
}

// Stop ends the probe and waits for it.
func (p *Probe) Stop() {
	p.cancel()
	p.all.Wait()
}

// open makes a client and the topic.
func (p *Probe) open(ctx context.Context) (q *streammq.MQ, done func(), err error) {
	client, err := redisclient.New(p.url)
	if err != nil {
		return nil, nil, err
	}
	cfg := streammq.NewDefaultConfig()
	cfg.Log = slog.New(slog.DiscardHandler)
	if q, err = streammq.New(client, cfg); err == nil {
		_, err = q.CreateTopic(ctx, streammq.Topic{Name: probeTopic, Partitions: probePartitions, Status: true})
	}
	if err != nil {
		client.Close()
		return nil, nil, fmt.Errorf("probe: %w", err)
	}
	return q, client.Close, nil
}

// publish adds messages until ctx ends.
func (p *Probe) publish(ctx context.Context) {
	for n := 0; ctx.Err() == nil; {
		q, done, err := p.open(ctx)
		if err != nil {
			await.Pause(ctx, probePause)
			continue
		}
		producer := q.NewProducer(nil)
		for err == nil && await.Pause(ctx, probePause) {
			n++
			_, err = producer.Publish(ctx, probeTopic, streammq.Message{Key: "k" + strconv.Itoa(n%probeKeys), Payload: []byte(strconv.Itoa(n))})
		}
		done()
	}
}

// live is the life of one member.
func (p *Probe) live(ctx context.Context, orderly bool) error {
	q, done, err := p.open(ctx)
	if err != nil {
		return err
	}
	kill := sync.OnceFunc(done)
	defer kill()
	cfg := streammq.NewDefaultSubscriberConfig(probeTopic, probeGroup, p.handle)
	cfg.Lease, cfg.Renew, cfg.Rebalance = probeLease, probeLease/4, probeLease/4
	member, err := q.NewSubscriber(cfg)
	if err != nil {
		return err
	}
	ctx, end := context.WithTimeout(ctx, probeLife)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- member.Run(ctx) }()
	if !orderly && await.Pause(ctx, probeLife/2) {
		kill() // it can release nothing any more
		end()
	}
	return <-ended
}

// handle notes a run.
func (p *Probe) handle(_ context.Context, d *streammq.Delivery) streammq.Result {
	p.log.Note(fsck.Move{
		At: time.Now().UTC(), Op: fsck.MoveHandle, Topic: d.Topic, Group: d.Group, Partition: d.Partition, Epoch: d.Epoch,
		Key: d.Key, ID: d.ID, Attempt: d.Attempt,
	})
	if p.runs.Add(1)%probeFails == 0 {
		return streammq.Retry(errors.New("the probe fails now and then"))
	}
	return streammq.Success()
}
