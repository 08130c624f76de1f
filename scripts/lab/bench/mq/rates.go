// Package mq measures pkg/streammq beside raw commands.
package mq

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/engine"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	mqMessages = 50_000
	mqRounds   = 5
	mqBatch    = 256
	mqPayload  = 200 // bytes
	mqTopic    = "bench"
	mqGroup    = "g"
)

// mqRig is the queue on a Redis of its own.
type mqRig struct {
	server *labserver.Server
	client rueidis.Client
	mq     *streammq.MQ
}

// StreamMQ measures pkg/streammq: beside the raw commands in the same run, its latency, and how it takes over.
func StreamMQ(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	server, err := labserver.Start(ctx, labserver.KindRedis, labserver.Options{})
	if err != nil {
		return nil, err
	}
	s := engine.Servers{Redis: server}
	defer s.End()
	client, err := mqClient(server.Addr)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	q, err := streammq.New(client, streammq.NewDefaultConfig())
	if err != nil {
		return nil, err
	}
	r := &mqRig{server: server, client: client, mq: q}
	var out []figure.Figure
	for _, part := range []func(context.Context) ([]figure.Figure, error){r.rates, r.latencies, r.lateness, r.takeover, r.rebalance} {
		figures, err := part(ctx)
		out = append(out, figures...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// mqClient is as the README advises: one connection for pipelines, no cache in the client.
func mqClient(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
}

// fresh empties the server and makes the topic.
func (r *mqRig) fresh(ctx context.Context, partitions int, status bool) error {
	if err := r.client.Do(ctx, r.client.B().Flushall().Build()).Error(); err != nil {
		return err
	}
	// An MQ heals topics that it knew; the settings of the last part are not to come back.
	q, err := streammq.New(r.client, streammq.NewDefaultConfig())
	if err != nil {
		return err
	}
	r.mq = q
	_, err = q.CreateTopic(ctx, streammq.Topic{Name: mqTopic, Partitions: partitions, Status: status})
	return err
}

// rates publishes and consumes the same messages by the raw commands and by the queue, in turns.
func (r *mqRig) rates(ctx context.Context) ([]figure.Figure, error) {
	ways := []struct {
		name string
		run  func(context.Context) error
	}{
		{"raw publish", r.rawPublish}, {"raw consume", r.rawConsume},
		{"publish", r.publish}, {"consume", r.consume}, {"poll", r.poll},
	}
	rate := map[string][]float64{}
	var commands, allocations []float64
	for range mqRounds {
		if err := r.fresh(ctx, 1, true); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := r.publish(ctx); err != nil {
			return nil, fmt.Errorf("publish with status: %w", err)
		}
		rate["status"] = append(rate["status"], engine.PerSecond(mqMessages, time.Since(began)))
		for _, way := range ways {
			if strings.HasSuffix(way.name, "publish") {
				if err := r.fresh(ctx, 1, false); err != nil {
					return nil, err
				}
			}
			cost, took, err := r.counted(ctx, way.run)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			rate[way.name] = append(rate[way.name], engine.PerSecond(mqMessages, took))
			if way.name == "consume" {
				commands, allocations = append(commands, cost.commands), append(allocations, cost.allocations)
			}
		}
	}
	ratio := func(ours, raw string) float64 { return ratioOf(rate[ours], rate[raw]) }
	note := fmt.Sprintf("%d messages of %d bytes, one partition, batches of %d, median of %d rounds", mqMessages, mqPayload, mqBatch, mqRounds)
	return []figure.Figure{
		{Name: "raw pipelined XADD of the same entries", Measured: figure.Median(rate["raw publish"]), Unit: "/s", Note: note},
		{Name: "publish", Measured: figure.Median(rate["publish"]), Unit: "/s"},
		{Name: "publish ÷ raw", Measured: ratio("publish", "raw publish"), Unit: "×", Asked: 0.8, Relation: "≥", Note: "of the same round"},
		{Name: "publish with status ÷ raw", Measured: ratio("status", "raw publish"), Unit: "×", Asked: 0.2, Relation: "≥"},
		{Name: "raw XREADGROUP 256 + XACK", Measured: figure.Median(rate["raw consume"]), Unit: "/s"},
		{Name: "consume + ack", Measured: figure.Median(rate["consume"]), Unit: "/s"},
		{Name: "consume + ack ÷ raw", Measured: ratio("consume", "raw consume"), Unit: "×", Asked: 0.7, Relation: "≥", Note: "of the same round"},
		{Name: "Consumer.Poll + Ack", Measured: figure.Median(rate["poll"]), Unit: "/s", Note: "one caller, one poll after another"},
		{Name: "Poll + Ack ÷ raw", Measured: ratio("poll", "raw consume"), Unit: "×", Note: "of the same round"},
		{Name: "commands that Redis ran for a consumed message", Measured: figure.Median(commands), Asked: 0.05, Relation: "≤", Note: "those inside scripts counted, and heartbeats"},
		{Name: "allocations for a consumed message", Measured: figure.Median(allocations), Note: "of the whole process"},
	}, nil
}

// mqCost is what a message cost.
type mqCost struct{ commands, allocations float64 }

// counted runs f and tells what it cost.
func (r *mqRig) counted(ctx context.Context, f func(context.Context) error) (mqCost, time.Duration, error) {
	before, err := r.server.Counters(ctx)
	if err != nil {
		return mqCost{}, 0, err
	}
	var first, second runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&first)
	began := time.Now()
	err = f(ctx)
	took := time.Since(began)
	runtime.ReadMemStats(&second)
	after, errAfter := r.server.Counters(ctx)
	if err := errors.Join(err, errAfter); err != nil {
		return mqCost{}, 0, err
	}
	return mqCost{
		commands:    after.Sub(before).Per(mqMessages).Commands,
		allocations: float64(second.Mallocs-first.Mallocs) / mqMessages,
	}, took, nil
}

func (r *mqRig) publish(ctx context.Context) error {
	p := r.mq.NewProducer(nil)
	messages := make([]streammq.Message, mqBatch)
	for i := range messages {
		messages[i] = streammq.Message{Key: "k", Payload: []byte(strings.Repeat("x", mqPayload))}
	}
	for n := 0; n < mqMessages; n += mqBatch {
		if _, err := p.PublishBatch(ctx, mqTopic, messages[:min(mqBatch, mqMessages-n)]); err != nil {
			return err
		}
	}
	return nil
}

// rawPublish sends the bytes that publish sends, made beforehand.
func (r *mqRig) rawPublish(ctx context.Context) error {
	fields := []string{
		"payload", strings.Repeat("x", mqPayload), "timestamp", strconv.FormatInt(time.Now().UnixMilli(), 10), "retryCount", "0",
		"maxRetries", "5", "topic", mqTopic, "partitionId", "0", "key", "k",
		"headers", `{"x-message-uuid":"01890a5d-ac96-774b-bcce-b302099a8057"}`, "originalMessageId", "",
	}
	for n := 0; n < mqMessages; n += mqBatch {
		commands := make(rueidis.Commands, min(mqBatch, mqMessages-n))
		for i := range commands {
			commands[i] = r.client.B().Arbitrary("XADD").Keys(mqStream(0)).Args("*").Args(fields...).Build()
		}
		for _, result := range r.client.DoMulti(ctx, commands...) {
			if err := result.Error(); err != nil {
				return err
			}
		}
	}
	return nil
}

func mqStream(partition int) string {
	return "stream:topic:" + mqTopic + ":p:" + strconv.Itoa(partition)
}

// rawConsume reads and acknowledges by hand what was published.
func (r *mqRig) rawConsume(ctx context.Context) error {
	stream := mqStream(0)
	if err := r.client.Do(ctx, r.client.B().XgroupCreate().Key(stream).Group("raw").Id("0").Build()).Error(); err != nil {
		return err
	}
	for n := 0; n < mqMessages; {
		got, err := r.client.Do(ctx, r.client.B().Xreadgroup().Group("raw", "c").Count(mqBatch).Streams().Key(stream).Id(">").Build()).AsXRead()
		if err != nil {
			return err
		}
		ids := make([]string, 0, mqBatch)
		for _, e := range got[stream] {
			ids = append(ids, e.ID)
		}
		if err := r.client.Do(ctx, r.client.B().Xack().Key(stream).Group("raw").Id(ids...).Build()).Error(); err != nil {
			return err
		}
		n += len(ids)
	}
	return nil
}

// consume runs a subscriber, from its start until the last message is acknowledged.
func (r *mqRig) consume(ctx context.Context) error {
	var n atomic.Int64
	all := make(chan struct{})
	stop, err := r.subscribe(ctx, func(context.Context, *streammq.Delivery) streammq.Result {
		if n.Add(1) == mqMessages {
			close(all)
		}
		return streammq.Success()
	}, nil)
	if err != nil {
		return err
	}
	return errors.Join(await.Closed(ctx, all), stop()) // it leaves after its last acknowledgement
}

// subscribe runs a member with the defaults, and batches of 256; stop ends it.
func (r *mqRig) subscribe(ctx context.Context, h streammq.Handler, change func(*streammq.SubscriberConfig)) (stop func() error, err error) {
	cfg := streammq.NewDefaultSubscriberConfig(mqTopic, mqGroup, h)
	cfg.Batch = mqBatch
	if change != nil {
		change(&cfg)
	}
	sub, err := r.mq.NewSubscriber(cfg)
	if err != nil {
		return nil, err
	}
	return await.Beside(ctx, sub.Run), nil
}

// ratioOf is the median of the ratios inside each round.
func ratioOf(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return figure.Median(ratios)
}

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
