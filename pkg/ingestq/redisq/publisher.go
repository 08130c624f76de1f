// Package redisq implements the queue port on a Redis Stream with one consumer group, over rueidis (contract §5).
//
// It is no task store and no retry queue: a delivery only names a task, retries and takeovers are found in the table
// (design D4), and what Redis loses comes back from there (design D5). So every method heals a missing stream or group,
// none of them trusts an entry to be there, and nothing here is ever trimmed by length.
//
// Start with redisclient.New and New; a process that only publishes uses NewPublisher. One Redis, with or without Sentinel,
// or a Redis Cluster: there the stream, its heartbeats and all that scripts touch with it lie in one slot, on one node, and the
// dead letter stream in its own, so that Quarantine is two steps. Package embedded serves the same in process for `millweir dev`.
package redisq

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
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/streammq/stream"
	pb "github.com/millweir/millweir/proto"
)

const (
	callTimeout    = 3 * time.Second // of one command or pipeline that does not block
	pipelineLength = 500             // commands of one pipeline with entries; rueidis treats more than 2,000 as blocking
	pipelineBytes  = 4 << 20         // of entries in one pipeline, so that large ones too go out within callTimeout
	idBatch        = 1000            // ids of one XACK or XCLAIM
)

// Publisher adds deliveries to the stream and is no member of its group; for processes that only accept work.
// It is safe for concurrent use.
type Publisher struct {
	client   rueidis.Client
	scripts  stream.Runner // each of these finds its work done the second time
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	metrics  *Metrics
	codec    Codec
	embedded bool

	boundMu sync.Mutex
	counted time.Time // when the unfinished entries were counted
	left    int       // how many more there may be
}

var _ ingestq.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher on a client that the caller closes. now is the clock (time.Now);
// metrics may be shared with other queues, nil counts for nobody. cfg must be valid.
func NewPublisher(client rueidis.Client, cfg Config, log *slog.Logger, now func() time.Time, metrics *Metrics) *Publisher {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	metrics.forStream(cfg.StreamKey)
	return &Publisher{
		client: client, scripts: stream.Runner{Client: client, Again: true}, cfg: cfg, log: log, now: now, metrics: metrics,
		codec: plain{}, embedded: redisclient.Embedded(cfg.URL),
	}
}

// do runs one command within callTimeout.
func do(ctx context.Context, client rueidis.Client, command rueidis.Completed) rueidis.RedisResult {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return client.Do(call, command)
}

// Destination implements ingestq.Described.
func (p *Publisher) Destination(string) (system, name string) { return "redis", p.cfg.StreamKey }

// Publish implements ingestq.Publisher.
func (p *Publisher) Publish(ctx context.Context, envelopes []*pb.TaskEnvelope) ([]string, error) {
	ids := make([]string, len(envelopes))
	var errs []error
	var entries [][]pb.Field
	var places []int // of the entries' ids
	for i, e := range envelopes {
		fields, err := p.codec.Encode(e)
		if err != nil {
			errs = append(errs, fmt.Errorf("publish task %q: %w", e.GetTaskId(), err))
			continue
		}
		entries, places = append(entries, fields), append(places, i)
	}
	room, err := p.room(ctx, len(entries))
	if err != nil {
		errs = append(errs, fmt.Errorf("publish %d deliveries to %s: %w", len(envelopes), p.cfg.StreamKey, err))
	}
	entries = entries[:room]
	size := func(i int) int { return fieldBytes(entries[i]) }
	for from, to := range ingestq.Portions(len(entries), pipelineLength, pipelineBytes, size) {
		if err := p.send(ctx, entries[from:to], places[from:to], ids); err != nil {
			doing := fmt.Sprintf("publish %d deliveries to %s", len(envelopes), p.cfg.StreamKey)
			return ids, errors.Join(append(errs, failure(ctx, doing, err))...)
		}
	}
	return ids, errors.Join(errs...)
}

// boundEvery is how long a count of unfinished entries is used.
const boundEvery = 100 * time.Millisecond

// room returns how many of n entries may be added (Config.MaxUnfinished), with ErrFull or ErrUnavailable if not all.
func (p *Publisher) room(ctx context.Context, n int) (int, error) {
	if p.cfg.MaxUnfinished == 0 || n == 0 {
		return n, nil
	}
	p.boundMu.Lock()
	defer p.boundMu.Unlock()
	now := p.now()
	if age := now.Sub(p.counted); p.counted.IsZero() || age < 0 || age >= boundEvery || p.left < n {
		stats, err := p.Stats(ctx)
		if err != nil {
			return 0, err
		}
		unfinished := stats.Length // at most so many, where the server cannot tell
		if stats.Lag >= 0 {
			unfinished = stats.Pending + stats.Lag
		}
		p.counted, p.left = now, max(0, p.cfg.MaxUnfinished-int(unfinished))
	}
	got := min(n, p.left)
	p.left -= got
	if got < n {
		return got, fmt.Errorf("%w of %d unfinished entries, %d are not added", ingestq.ErrFull, p.cfg.MaxUnfinished, n-got)
	}
	return got, nil
}

// send runs XADDs in one pipeline and puts their ids into their places.
func (p *Publisher) send(ctx context.Context, entries [][]pb.Field, places []int, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	commands := make(rueidis.Commands, len(entries))
	for i, fields := range entries {
		commands[i] = p.add(p.cfg.StreamKey, fields)
	}
	results := p.client.DoMulti(ctx, commands...)
	for i, result := range results {
		if id, err := result.ToString(); err == nil {
			ids[places[i]] = id
		}
	}
	return stream.FirstError(results)
}

func fieldBytes(fields []pb.Field) int {
	n := 0
	for _, f := range fields {
		n += len(f.Name) + len(f.Value)
	}
	return n
}

// add is an XADD; tried again after a lost connection it may add twice, which the port allows.
func (p *Publisher) add(stream string, fields []pb.Field) rueidis.Completed {
	command := p.client.B().Xadd().Key(stream).Id("*").FieldValue()
	for _, f := range fields {
		command = command.FieldValue(f.Name, f.Value)
	}
	return command.Build().ToRetryable()
}

// Ping returns nil when Redis answers, of a cluster the node that has the stream.
func (p *Publisher) Ping(ctx context.Context) error {
	return failure(ctx, "ping", do(ctx, p.client, p.client.B().Exists().Key(p.cfg.StreamKey).Build()).Error())
}

// Stats reads the counts; a missing stream or group counts nothing.
func (p *Publisher) Stats(ctx context.Context) (ingestq.Stats, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	stats := ingestq.Stats{Lag: -1}
	results := p.client.DoMulti(call,
		p.client.B().Xlen().Key(p.cfg.StreamKey).Build(),
		p.client.B().XinfoGroups().Key(p.cfg.StreamKey).Build())
	length, err := results[0].AsInt64()
	if err != nil {
		return stats, failure(ctx, "count stream "+p.cfg.StreamKey, err)
	}
	stats.Length = length
	groups, err := stream.ReadGroups(results[1])
	if stream.IsMissing(err) {
		return stats, nil
	}
	if err != nil {
		return stats, failure(ctx, "count groups of "+p.cfg.StreamKey, err)
	}
	for _, g := range groups {
		if g.Name != p.cfg.Group {
			continue
		}
		stats.Pending = g.Pending
		if !p.embedded { // there it is the stream's length, whatever was read
			stats.Lag = g.Lag
		}
	}
	return stats, nil
}

// Locate implements ingestq.Locator.
func (p *Publisher) Locate(ctx context.Context, id string) (*ingestq.Place, error) {
	if _, ok := stream.ParseID(id); !ok {
		return nil, nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held, err := stream.PendingEntries(call, p.client, p.cfg.StreamKey, p.cfg.Group, 0, id, 1)
	if err != nil && !stream.IsMissing(err) {
		return nil, failure(ctx, "look for entry "+id, err)
	}
	if len(held) == 1 && held[0].ID == id {
		return &ingestq.Place{Stream: p.cfg.StreamKey, Consumer: held[0].Consumer, Idle: held[0].Idle, Deliveries: held[0].Deliveries}, nil
	}
	found, err := do(ctx, p.client, p.client.B().Xrange().Key(p.cfg.StreamKey).Start(id).End(id).Build()).AsXRange()
	if err != nil || len(found) == 0 {
		return nil, failure(ctx, "look for entry "+id, err)
	}
	return &ingestq.Place{Stream: p.cfg.StreamKey}, nil
}

// idBatches cuts ids into commands and leaves out what is no id, which would fail the whole command: a row may hold another
// transport's.
func idBatches(ids []string) [][]string {
	var known []string
	for _, id := range ids {
		if _, ok := stream.ParseID(id); ok {
			known = append(known, id)
		}
	}
	return slices.Collect(slices.Chunk(known, idBatch))
}

// StreamLength counts the stream's entries, read or not; 0 when there is no stream.
func (p *Publisher) StreamLength(ctx context.Context) (int64, error) {
	n, err := do(ctx, p.client, p.client.B().Xlen().Key(p.cfg.StreamKey).Build()).AsInt64()
	return n, failure(ctx, "length of "+p.cfg.StreamKey, err)
}

// Streams are the counts of this stream; see NewCollector.
func (p *Publisher) Streams(ctx context.Context) ([]StreamStats, error) {
	stats, err := p.Stats(ctx)
	return []StreamStats{{p.cfg.StreamKey, p.cfg.Group, stats}}, err
}

// Codec is how the fields of an entry carry an envelope.
type Codec interface {
	// Encode returns the fields of a new entry; errors are those of package proto.
	Encode(e *pb.TaskEnvelope) ([]pb.Field, error)
	// Glance finds the task, and that Decode will read all of the fields without an error; ok is false when only Decode can tell.
	Glance(fields stream.Fields) (taskID string, ok bool)
	// Decode reads what Encode, or another producer, has written. Its error wraps proto.ErrMalformed or another of that package.
	Decode(fields map[string]string) (*pb.TaskEnvelope, error)
}

// plain is the codec of the single stream: the envelope's members are the entry's fields (contract §5).
type plain struct{}

func (plain) Encode(e *pb.TaskEnvelope) ([]pb.Field, error) { return pb.EncodeFields(e) }

func (plain) Glance(fields stream.Fields) (string, bool) {
	var g pb.Glance
	for i := range fields.Len() {
		if !g.Field(fields.At(i)) {
			return "", false
		}
	}
	return g.Task()
}

func (plain) Decode(fields map[string]string) (*pb.TaskEnvelope, error) {
	return pb.DecodeFields(fields)
}

// decode keeps the fields as they came when they are no envelope.
func decode(codec Codec, id string, fields map[string]string) ingestq.Delivery {
	envelope, err := codec.Decode(fields)
	if err != nil {
		return ingestq.Delivery{ID: id, Raw: fields, Err: fmt.Errorf("decode delivery %s: %w", id, err)}
	}
	return ingestq.Decoded(id, envelope)
}

// unread is the body of an entry of which only the task was looked for.
type unread struct {
	codec  Codec
	fields stream.Fields
}

// Envelope implements ingestq.Body.
func (u unread) Envelope() *pb.TaskEnvelope {
	e, _ := u.codec.Decode(u.fields.Map()) // Codec.Glance has made sure that there is no error
	return e
}

// failure is ingestq.Failure; a time-out and a redirection, which a client of a cluster follows, say what they mean.
func failure(ctx context.Context, doing string, err error) error {
	switch {
	case ctx.Err() != nil || errors.Is(err, ingestq.ErrUnavailable):
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: no answer in time", ingestq.ErrUnavailable)
	case isRedirect(err):
		err = fmt.Errorf("%w: %w", ingestq.ErrUnavailable, redisclient.ErrCluster)
	}
	return ingestq.Failure(ctx, doing, err)
}

func isRedirect(err error) bool {
	redis, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	if _, moved := redis.IsMoved(); moved {
		return true
	}
	_, ask := redis.IsAsk()
	return ask
}
