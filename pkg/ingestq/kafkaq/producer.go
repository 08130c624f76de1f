package kafkaq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/outbox"
)

// Headers of a record (contract: trace, event, attempt).
const (
	headerTrace   = "traceparent"
	headerEvent   = "event-id"
	headerAttempt = "attempt"
)

const (
	// sendTimeout bounds a Send: what is not acknowledged by then is answered with an error, and may arrive all the same.
	sendTimeout = 15 * time.Second
	// brokerTimeout is how long a broker may wait for its replicas.
	brokerTimeout = 5 * time.Second
	// linger gathers the records of sends that come together.
	linger = time.Millisecond

	// An attempt asks three times within two seconds; the relay decides about the next attempt.
	retries      = 3
	retryBackoff = 200 * time.Millisecond
	idTries      = 10 // 100 ms apart: a broker that has just started is not ready to give producer ids

	maxMessage    = 1 << 20 // of a record: Kafka's own default
	recordVersion = 2       // of the record format, for its size
)

// errNoAnswer is the cause when nothing was heard of a record in time.
var errNoAnswer = errors.New("no acknowledgement in time")

// Producer sends records, idempotent and with acks=all. It implements outbox.Sender, and is safe for concurrent use.
type Producer struct {
	client *Client
	cfg    *sarama.Config

	mu     sync.Mutex
	line   *line // nil: made by the next send
	closed bool
	lines  sync.WaitGroup
}

var _ outbox.Sender = (*Producer)(nil)

// NewProducer makes a producer; no broker has to answer. Close it before the client.
func NewProducer(client *Client) *Producer {
	cfg := client.cfg.client()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1 // which the library wants for it
	cfg.Producer.RequiredAcks, cfg.Producer.Timeout = sarama.WaitForAll, brokerTimeout
	cfg.Producer.Return.Successes = true
	cfg.Producer.Transaction.Retry.Max = idTries // of asking for a producer id, which is not a transaction's alone
	cfg.Producer.Retry.Max, cfg.Producer.Retry.Backoff = retries, retryBackoff
	cfg.Producer.Flush.Frequency = linger
	cfg.Producer.MaxMessageBytes = maxMessage
	return &Producer{client: client, cfg: cfg}
}

// Close waits for what is being sent; its time is bounded.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.closed = true
	if p.line != nil {
		p.retire(p.line)
	}
	p.mu.Unlock()
	p.lines.Wait()
	return nil
}

// Probe implements outbox.Sender.
func (p *Producer) Probe(ctx context.Context) error { return p.client.Probe(ctx) }

// Send implements outbox.Sender.
// A broker refuses a batch as a whole: what was refused together with others is sent again alone, so that only the guilty
// one counts as refused.
func (p *Producer) Send(ctx context.Context, events []outbox.Event) []outbox.Result {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	messages := make([]*sarama.ProducerMessage, len(events))
	for i, e := range events {
		messages[i] = message(e)
	}
	errs := p.send(ctx, messages)
	for i, e := range events {
		if len(events) > 1 && namesRecord(errs[i]) && !p.tooLarge(messages[i]) {
			errs[i] = p.send(ctx, []*sarama.ProducerMessage{message(e)})[0]
		}
	}
	out := make([]outbox.Result, len(events))
	unknown := map[string]bool{}
	for i, e := range events {
		out[i] = outbox.Result{Seq: e.Seq, Err: p.verdict(ctx, e.Topic, errs[i], unknown)}
	}
	return out
}

// verdict classifies an error; unknown remembers what fresh metadata said about a topic.
func (p *Producer) verdict(ctx context.Context, topic string, err error, unknown map[string]bool) error {
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return classify(err)
	}
	missing, asked := unknown[topic]
	if !asked {
		_, cause := p.client.Partitions(ctx, topic)
		missing = errors.Is(cause, sarama.ErrUnknownTopicOrPartition) // a broker that does not answer knows nothing of it
		unknown[topic] = missing
	}
	if !missing {
		return err
	}
	return &outbox.RefusedError{Err: fmt.Errorf("topic %s: %w", topic, err), Late: true}
}

// message is an event's record.
func message(e outbox.Event) *sarama.ProducerMessage {
	headers := []sarama.RecordHeader{
		{Key: []byte(headerEvent), Value: []byte(e.ID)},
		{Key: []byte(headerAttempt), Value: []byte(strconv.Itoa(e.AttemptCount + 1))},
	}
	if e.TraceParent != "" {
		headers = append(headers, sarama.RecordHeader{Key: []byte(headerTrace), Value: []byte(e.TraceParent)})
	}
	return &sarama.ProducerMessage{
		Topic: e.Topic, Key: sarama.StringEncoder(e.Key), Value: sarama.ByteEncoder(e.Payload), Headers: headers,
	}
}

// tooLarge tells what the library would refuse.
func (p *Producer) tooLarge(m *sarama.ProducerMessage) bool {
	return m.ByteSize(recordVersion) > p.cfg.Producer.MaxMessageBytes
}

// send sends records all at once and returns one error each, in their order.
func (p *Producer) send(ctx context.Context, messages []*sarama.ProducerMessage) []error {
	l, err := p.take(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	answers := make(chan answer, len(messages)) // who answers waits for nobody, however late that is
	for i, m := range messages {
		if p.tooLarge(m) {
			answers <- answer{i, fmt.Errorf("%w: record of %d bytes, at most %d", sarama.ErrMessageSizeTooLarge, m.ByteSize(recordVersion), p.cfg.Producer.MaxMessageBytes)}
			continue
		}
		m.Metadata = func(err error) { answers <- answer{i, err} }
		select {
		case l.lib.Input() <- m:
		case <-ctx.Done():
			answers <- answer{i, errNoAnswer}
		}
	}
	errs := slices.Repeat([]error{errNoAnswer}, len(messages))
	for heard := 0; heard < len(messages) && (ctx.Err() == nil || len(answers) > 0); {
		select {
		case a := <-answers:
			errs[a.i], heard = a.err, heard+1
		case <-ctx.Done():
		}
	}
	p.give(l, healthy(errs))
	return errs
}

// answer is what the library says of the i-th record of a send.
type answer struct {
	i   int
	err error
}

// healthy tells whether a line may be used again. The library stops trying for ten seconds after a few failures, and loses
// its place in the sequence of a partition: a new one is cheaper than to trust it.
func healthy(errs []error) bool {
	return !slices.ContainsFunc(errs, func(err error) bool { return err != nil && !errors.Is(err, sarama.ErrMessageSizeTooLarge) })
}

// line is one producer of the library, and how many sends use it.
type line struct {
	client  sarama.Client
	lib     sarama.AsyncProducer
	users   int
	retired bool
	heard   sync.WaitGroup
}

// newLine makes a line with a client of its own: the library forgets to close the one that it makes when no broker gives a
// producer id.
func newLine(brokers []string, cfg *sarama.Config) (*line, error) {
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, err
	}
	lib, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	l := &line{client: client, lib: lib}
	l.listen()
	return l, nil
}

// take gives the line to send on, and makes one if there is none.
func (p *Producer) take(ctx context.Context) (*line, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, sarama.ErrClosedClient
	}
	if ctx.Err() != nil { // others that waited for this lock took too long
		return nil, errNoAnswer
	}
	if p.line == nil {
		// Its producer id is asked for here: without a broker this is where a send fails. Others wait for the same answer.
		l, err := newLine(p.client.cfg.Brokers, p.cfg)
		if err != nil {
			return nil, fmt.Errorf("start a producer: %w", err)
		}
		p.line = l
	}
	p.line.users++
	return p.line, nil
}

// give ends a send's use of its line.
func (p *Producer) give(l *line, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.users--
	if !healthy || l.retired {
		p.retire(l)
	}
}

// retire takes a line out of use and closes it with its last user. The caller holds the lock.
func (p *Producer) retire(l *line) {
	l.retired = true
	if p.line == l {
		p.line = nil
	}
	if l.users == 0 {
		p.lines.Go(l.close)
	}
}

// listen hands every answer to the send that waits for it.
func (l *line) listen() {
	l.heard.Go(func() {
		for m := range l.lib.Successes() {
			heard(m, nil)
		}
	})
	l.heard.Go(func() {
		for e := range l.lib.Errors() {
			heard(e.Msg, e.Err)
		}
	})
}

// heard hands an answer to the send that waits for it.
func heard(m *sarama.ProducerMessage, err error) {
	if tell, ok := m.Metadata.(func(error)); ok {
		tell(err)
	}
}

// close waits until the library has answered for all that it was given.
func (l *line) close() {
	l.lib.AsyncClose()
	l.heard.Wait()
	_ = l.client.Close() // nothing waits for its connections any more
}
