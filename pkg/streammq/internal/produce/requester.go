package produce

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// RequesterConfig is what a Requester needs. NewDefaultRequesterConfig gives every default.
type RequesterConfig struct {
	// Name of this process for people; a random part is added at each start.
	Name string
	// Timeout of a request whose ctx has no deadline.
	Timeout time.Duration
	// TTL is how long the reply stream of a requester that died stays; it is renewed every third of it.
	TTL time.Duration
	// Batch is the most replies of one read.
	Batch int
	// Format of FastStream's: requests go to single streams that FastStream reads, and its replies come on a Pub/Sub channel. TTL and
	// Batch are of no use then. Empty: requests go to topics.
	Format wire.Format
}

// Defaults of a Requester.
const (
	DefaultRequestTimeout = 30 * time.Second
	DefaultReplyTTL       = time.Minute
	defaultReplyBatch     = 256
)

// NewDefaultRequesterConfig has the defaults.
func NewDefaultRequesterConfig(name string) RequesterConfig {
	return RequesterConfig{Name: name, Timeout: DefaultRequestTimeout, TTL: DefaultReplyTTL, Batch: defaultReplyBatch}
}

// Validate names every setting that is out of its range; its error wraps ErrConfig or ErrGroupName.
func (c RequesterConfig) Validate() error {
	var p model.Problems
	p.Check(model.CheckName(c.Name, model.ErrGroupName))
	p.Refuse(c.Timeout < time.Millisecond, "Timeout %s: at least 1ms", c.Timeout)
	p.Refuse(c.TTL < time.Second, "TTL %s: at least 1s", c.TTL)
	p.Refuse(c.Batch < 1 || c.Batch > model.MaxBatch, "Batch %d: 1 to %d", c.Batch, model.MaxBatch)
	p.Refuse(!wire.Known(c.Format), "Format %q: unknown", c.Format)
	return p.Err()
}

// Reply is what a handler answered.
type Reply struct {
	Payload []byte
	Headers map[string]string
	Group   string // whose member answered
	Attempt int    // the run of the request that did, from 1
}

// RemoteError is what a request failed with for good, in the words of its handler; it is ErrRemote.
type RemoteError struct {
	Type    string // of the innermost error
	Message string
}

// Error implements error.
func (e *RemoteError) Error() string { return fmt.Sprintf("%v: %s", model.ErrRemote, e.Message) }

// Unwrap makes it ErrRemote.
func (e *RemoteError) Unwrap() error { return model.ErrRemote }

// Requester sends requests and reads their replies. Any number of requests share one stream of replies and one blocking
// reader. It is safe for concurrent use.
//
// Replies travel over a stream of the requester's own and not over Pub/Sub: a connection that breaks between request and
// reply loses nothing, replies that come in a burst wait, and what nobody reads any more is bounded and expires.
type Requester struct {
	mq   *core.Core
	cfg  RequesterConfig
	name string // of this start
	p    *Producer

	ready chan struct{} // closed when the stream of replies is there
	mu    sync.Mutex
	ran   bool
	open  map[string]chan answer // by correlation id
}

type answer struct {
	reply Reply
	err   error
}

// NewRequester makes a requester over a partitioner (nil is NewHash); Run makes it read replies.
// Errors: those of RequesterConfig.Validate.
func NewRequester(q *core.Core, cfg RequesterConfig, p Partitioner) (*Requester, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Requester{
		mq: q, cfg: cfg, name: cfg.Name + "-" + model.NewUUID(q.Cfg.Now()), p: NewProducer(q, p),
		ready: make(chan struct{}), open: map[string]chan answer{},
	}
	r.p.single, r.p.format = cfg.Format != wire.FormatOwn, cfg.Format
	return r, nil
}

// Request publishes a message and waits for its reply until ctx ends, at most Config.Timeout if ctx has no deadline.
// A responder that dies leaves the request to the next owner of its partition, who may still answer in time; after that
// nobody runs it any more. It may run more than once, and the first reply counts.
// Errors: ErrNoReply with ctx's when none came in time, ErrRemote (a *RemoteError) when the handler failed it for good,
// and those of Producer.Publish.
func (r *Requester) Request(ctx context.Context, topic string, m model.Message) (Reply, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.Timeout)
		defer cancel()
	}
	select {
	case <-r.ready:
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("request to %s: %w: Run has not made its stream of replies yet: %w", topic, model.ErrNoReply, ctx.Err())
	}
	id := model.NewUUID(r.mq.Cfg.Now())
	replied := make(chan answer, 1)
	r.mu.Lock()
	r.open[id] = replied
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.open, id)
		r.mu.Unlock()
	}()
	deadline, _ := ctx.Deadline()
	headers := make(map[string]string, len(m.Headers)+4)
	maps.Copy(headers, m.Headers)
	m.Headers = headers
	headers[model.HeaderReplyTimeout] = strconv.FormatInt(max(1, time.Until(deadline).Milliseconds()), 10)
	var err error
	if r.cfg.Format == wire.FormatOwn {
		headers[model.HeaderReplyTo], headers[model.HeaderCorrelationID] = r.name, id
		_, err = r.p.Publish(ctx, topic, m)
	} else {
		if err = model.CheckStreamKey(topic); err != nil {
			return Reply{}, err
		}
		headers[wire.FastStreamReplyTo], headers[wire.FastStreamCorrelationID] = r.name, id
		_, err = (&StreamProducer{p: r.p, key: topic}).Publish(ctx, m)
	}
	if err != nil {
		return Reply{}, err
	}
	select {
	case a := <-replied:
		return a.reply, a.err
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("request %s to %s: %w: %w", id, topic, model.ErrNoReply, ctx.Err())
	}
}

// keep makes the stream of replies, or prolongs its life. It is not abandoned at a stop: it might arrive after leave has removed the stream.
func (r *Requester) keep(ctx context.Context, lost chan<- struct{}) {
	key := core.ReplyKey(r.name)
	call, cancel := core.Writing(ctx)
	defer cancel()
	made, err := r.mq.Run(call, r.mq.Scripts.StreamMake, []string{key}, stream.Millis(r.cfg.TTL)).AsBool()
	if err != nil {
		if ctx.Err() == nil {
			r.mq.Cfg.Log.WarnContext(ctx, "streammq: stream of replies cannot be kept", slog.String("requester", r.name), slog.Any("error", err))
		}
		return
	}
	select {
	case <-r.ready:
		if made { // it was flushed, or this process was away for longer than its TTL
			select {
			case lost <- struct{}{}:
			default:
			}
		}
	default:
		close(r.ready)
	}
}

// read waits for replies after an id, gives them to those who wait, and returns the last id.
func (r *Requester) read(ctx context.Context, after string) (string, error) {
	key, block := core.ReplyKey(r.name), min(model.DefaultPoll, r.cfg.TTL/3)
	streams, err := r.mq.Client.Do(ctx, r.mq.Client.B().Xread().Count(int64(r.cfg.Batch)).Block(block.Milliseconds()).
		Streams().Key(key).Id(after).Build()).AsXRead()
	if rueidis.IsRedisNil(err) {
		return after, nil
	}
	if err != nil {
		return after, err
	}
	late := 0
	for _, e := range streams[key] {
		after = e.ID
		if !r.deliver(e.FieldValues) {
			late++
		}
	}
	if late > 0 {
		r.mq.Observe(model.Event{Kind: model.EventLateReply, Partition: -1, Member: r.cfg.Name, Count: late})
	}
	// What was read is of no use to anybody.
	return after, r.mq.Client.Do(ctx, r.mq.Client.B().Xtrim().Key(key).Minid().Threshold(stream.Following(after)).Build()).Error()
}

// deliver returns false when nobody waits for the reply any more.
func (r *Requester) deliver(fields map[string]string) bool {
	a := answer{reply: Reply{Payload: []byte(fields[wire.FieldPayload]), Group: fields[wire.FieldGroup]}}
	a.reply.Attempt, _ = strconv.Atoi(fields[wire.FieldAttempt]) // a reply without it is one all the same
	a.reply.Headers, _ = wire.DecodeHeaders(fields[wire.FieldHeaders])
	if text, failed := fields[wire.FieldError]; failed {
		a.err = &RemoteError{Type: fields[wire.FieldErrorType], Message: text}
	}
	return r.give(fields[wire.FieldCorrelation], a)
}

// leave removes the stream of replies; late ones find none and are dropped.
func (r *Requester) leave(ctx context.Context) {
	ctx, cancel := core.Writing(ctx)
	defer cancel()
	if err := r.mq.Client.Do(ctx, r.mq.Client.B().Unlink().Key(core.ReplyKey(r.name)).Build()).Error(); err != nil {
		r.mq.Cfg.Log.WarnContext(ctx, "streammq: stream of replies stays until it expires", slog.String("requester", r.name), slog.Any("error", err))
	}
}

// Inner tells what a requester is called since its start, when it can ask, and how many of its requests wait.
func Inner(r *Requester) (name string, ready chan struct{}, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name, r.ready, len(r.open)
}

// give hands an answer to who waits for it; false: nobody does any more. The first counts.
func (r *Requester) give(id string, a answer) bool {
	r.mu.Lock()
	replied := r.open[id]
	delete(r.open, id)
	r.mu.Unlock()
	if replied == nil {
		return false
	}
	replied <- a
	return true
}

// listen reads replies of FastStream, which come on a Pub/Sub channel, until ctx ends. What is published while no connection
// listens is lost: the request ends with ErrNoReply.
func (r *Requester) listen(ctx context.Context) {
	heard := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		select {
		case <-r.ready:
		default:
			if s.Kind == "subscribe" {
				close(r.ready) // the one goroutine that reads this connection calls this
			}
		}
	})
	for pause := model.DefaultErrorBackoff; ctx.Err() == nil; pause = min(2*pause, model.MaxErrorBackoff) {
		began := r.mq.Cfg.Now()
		// On a connection of its own: where it is given back the subscription ends.
		err := r.mq.Client.Dedicated(func(c rueidis.DedicatedClient) error {
			return c.Receive(heard, c.B().Subscribe().Channel(r.name).Build(), r.hear)
		})
		if ctx.Err() != nil {
			return
		}
		if r.mq.Cfg.Now().Sub(began) > model.MaxErrorBackoff {
			pause = model.DefaultErrorBackoff
		}
		r.mq.Cfg.Log.WarnContext(ctx, "streammq: reading replies failed", slog.String("requester", r.name), slog.Any("error", err))
		_ = stream.Sleep(ctx, pause) // the loop ends with ctx
	}
}

func (r *Requester) hear(m rueidis.PubSubMessage) {
	_, headers, body, err := wire.DecodeEnvelope([]byte(m.Message))
	if err != nil || !r.give(headers[wire.FastStreamCorrelationID], answer{reply: Reply{Payload: body, Headers: headers}}) {
		r.mq.Observe(model.Event{Kind: model.EventLateReply, Partition: -1, Member: r.cfg.Name, Count: 1})
	}
}

// Run reads replies until ctx ends; then it removes their stream and returns nil. It goes on through every failure of the
// server. Error: ErrRunning.
func (r *Requester) Run(ctx context.Context) error {
	r.mu.Lock()
	ran := r.ran
	r.ran = true
	r.mu.Unlock()
	if ran {
		return model.ErrRunning
	}
	if r.cfg.Format != wire.FormatOwn {
		r.listen(ctx)
		return nil
	}
	var running sync.WaitGroup
	defer r.leave(ctx)
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := make(chan struct{}, 1) // the stream was made again
	core.Every(ctx, &running, r.cfg.TTL/3, func(ctx context.Context) { r.keep(ctx, lost) })
	pause := model.DefaultErrorBackoff
	for after := "0"; ctx.Err() == nil; {
		next, err := r.read(ctx, after)
		select {
		case <-lost:
			next = "0"
		default:
		}
		if after = next; err == nil || ctx.Err() != nil {
			pause = model.DefaultErrorBackoff
			continue
		}
		r.mq.Cfg.Log.WarnContext(ctx, "streammq: reading replies failed", slog.String("requester", r.name), slog.Any("error", err))
		_ = stream.Sleep(ctx, pause) // the loop ends with ctx
		pause = min(2*pause, model.MaxErrorBackoff)
	}
	return nil
}
