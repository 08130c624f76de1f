package mirror

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/crash"
)

const (
	dialTime  = 10 * time.Second      // of a connection with its handshake
	closeTime = time.Second           // of an orderly goodbye
	callTime  = 5 * time.Second       // of a question, beyond what a task's tries may take: see patience
	bindTime  = time.Second           // until a binding is no longer waited for
	idle      = 20 * time.Millisecond // without a copy, until the queue is asked whether it is empty
	gather    = time.Millisecond      // for more copies of a batch
	mostTaken = 8 << 20               // bytes of a batch
	heartbeat = 10 * time.Second      // a connection without an answer for two of these is closed
)

// link is one connection to RabbitMQ with the topology of the copies.
type link struct {
	cfg  Config
	conn *amqp.Connection
	raw  net.Conn

	mu      sync.Mutex
	blocked string // why the broker takes no messages now; empty: it does
	watched chan struct{}
	binds   sync.WaitGroup // under way, maybe until the connection ends
}

// dial connects; close it. ctx is of the attempt: what is under way when a process ends is ended before its connection. The error has no password in it.
func dial(ctx context.Context, cfg Config, name string) (*link, error) {
	uri, err := amqp.ParseURI(cfg.URL)
	if err != nil {
		return nil, errors.New("connect to RabbitMQ: RABBITMQ_URL is no address of it")
	}
	l := &link{cfg: cfg, watched: make(chan struct{})}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(name)
	config := amqp.Config{
		Heartbeat: heartbeat, Properties: properties, Vhost: cfg.VHost,
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			l.raw = conn
			return conn, conn.SetDeadline(time.Now().Add(dialTime)) // the library ends it after the handshake
		},
	}
	if cfg.VHost == "" {
		config.Vhost = uri.Vhost
	}
	if uri.Scheme == "amqps" {
		config.TLSClientConfig = &tls.Config{ServerName: uri.Host, MinVersion: tls.VersionTLS12}
	}
	if l.conn, err = amqp.DialConfig(cfg.URL, config); err != nil {
		if l.raw != nil {
			_ = l.raw.Close()
		}
		return nil, fmt.Errorf("connect to RabbitMQ at %s:%d, vhost %q: %w", uri.Host, uri.Port, config.Vhost, err)
	}
	go l.watchBlocked(l.conn.NotifyBlocked(make(chan amqp.Blocking)))
	return l, nil
}

// watchBlocked notes when the broker has an alarm and takes no messages.
func (l *link) watchBlocked(blocking <-chan amqp.Blocking) {
	defer close(l.watched)
	for b := range blocking {
		l.mu.Lock()
		l.blocked = ""
		if b.Active {
			l.blocked = b.Reason
		}
		l.mu.Unlock()
	}
}

// refuses returns why the broker takes no messages now; empty: it does.
func (l *link) refuses() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocked
}

// end says goodbye and closes the connection also when nobody answers. What was taken and not acknowledged goes back to the queue.
func (l *link) end() {
	_ = l.conn.CloseDeadline(time.Now().Add(closeTime))
	_ = l.raw.Close()
}

// close ends the connection and waits for what watches it.
func (l *link) close() {
	l.end()
	<-l.watched
	l.binds.Wait()
}

// closed is told why the connection ended.
func (l *link) closed() <-chan *amqp.Error { return l.conn.NotifyClose(make(chan *amqp.Error, 1)) }

// patience is how long a question may take: RabbitMQ 3.10 leaves some without an answer while the queue has no leader. What may be
// published on a new connection is tried as often as it may be before that ends, so that it is known to have no copy.
func (c Config) patience() time.Duration {
	return younger + time.Duration(c.PublishRetries)*c.PublishTimeout + callTime
}

// limited runs a question to the broker; without an answer in time it ends the connection, and so the question.
func (l *link) limited(f func() error) error {
	limit := time.AfterFunc(l.cfg.patience(), l.end)
	err := f()
	if !limit.Stop() {
		return fmt.Errorf("no answer within %s: the queue %s has no leader, or the server hangs", l.cfg.patience(), l.cfg.Queue)
	}
	return err
}

// once runs f on a channel of its own: an error of a declaration closes the channel.
func (l *link) once(f func(ch *amqp.Channel) error) error {
	return l.limited(func() error { return l.unlimited(f) })
}

// unlimited is once, without an answer until the connection ends.
func (l *link) unlimited(f func(ch *amqp.Channel) error) error {
	ch, err := l.conn.Channel()
	if err != nil {
		return err
	}
	err = f(ch)
	_ = ch.Close()
	return err
}

// code is the AMQP code of an error; 0: none.
func code(err error) int {
	var e *amqp.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// there reports whether the queue of the copies is.
func (l *link) there() (bool, error) {
	err := l.once(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(l.cfg.Queue, true, false, false, false, nil)
		return err
	})
	if code(err) == amqp.NotFound {
		return false, nil
	}
	return err == nil, wrap("look for the queue "+l.cfg.Queue, err)
}

// step is one part of a topology: how it is made, and how it is looked for.
type step struct {
	what            string
	active, passive func(ch *amqp.Channel) error // passive nil: a binding
}

// queueStep is the step of a queue; kind is what people call it.
func queueStep(kind, name string, args amqp.Table) step {
	return step{
		kind + " " + name,
		func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(name, true, false, false, false, args)
			return err
		},
		func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			return err
		},
	}
}

// ensure makes a part of the topology, or finds it: with other arguments, or without the right to declare it, it is used as it is, with
// a warning; mend is what to do about other arguments.
func (l *link) ensure(s step, mend string) (warning string, err error) {
	if s.passive == nil {
		err = l.bind(s.active)
	} else {
		err = l.once(s.active)
	}
	switch {
	case code(err) == amqp.PreconditionFailed && s.passive != nil:
		warning = fmt.Sprintf("the %s has other arguments than contract §5 says: %v. It is used as it is%s", s.what, err, mend)
	case code(err) == amqp.AccessRefused:
		warning = fmt.Sprintf("the user of RABBITMQ_URL may not declare the %s: %v. It has to be there already", s.what, err)
	default:
		return "", wrap("declare the "+s.what, err)
	}
	if s.passive == nil {
		return warning, nil
	}
	switch look := l.once(s.passive); {
	case look != nil && code(err) == amqp.PreconditionFailed:
		return "", fmt.Errorf("RabbitMQ refuses the %s, maybe because it is too old (3.8.9 is): %w", s.what, err)
	case look != nil:
		return "", fmt.Errorf("the %s is not there, and the user of RABBITMQ_URL may not declare it: declare it, or grant the user configure on it: %w", s.what, look)
	}
	return warning, nil
}

// bind makes a binding, or finds it. RabbitMQ 4 leaves one without an answer while most nodes are away, also one that is there: so it is
// not waited for beyond bindTime. Whether it is there is told by what comes back.
func (l *link) bind(f func(ch *amqp.Channel) error) error {
	done := make(chan error, 1)
	l.binds.Go(func() { done <- l.unlimited(f) })
	limit := time.NewTimer(bindTime)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return nil
	}
}

// declare ensures the exchanges and queues with their bindings.
func (l *link) declare() (warning string, err error) {
	c := l.cfg
	exchange := func(name, kind string) step {
		return step{
			"exchange " + name,
			func(ch *amqp.Channel) error { return ch.ExchangeDeclare(name, kind, true, false, false, false, nil) },
			func(ch *amqp.Channel) error {
				return ch.ExchangeDeclarePassive(name, kind, true, false, false, false, nil)
			},
		}
	}
	bind := func(name, key, exchange string) step {
		return step{"binding of " + name, func(ch *amqp.Channel) error { return ch.QueueBind(name, key, exchange, false, nil) }, nil}
	}
	policy := fmt.Sprintf("; a policy mends it: "+
		`rabbitmqctl set_policy --apply-to queues rise "^%s$" '{"dead-letter-exchange":"%s","delivery-limit":%d,"max-length":%d,"overflow":"%s"}'`,
		c.Queue, c.DLX, c.DeliveryLimit, c.QueueMaxLength, c.Overflow)
	for _, s := range []step{
		exchange(c.DLX, "fanout"), queueStep("queue", c.dlq(), amqp.Table{"x-queue-type": "quorum"}), bind(c.dlq(), "", c.DLX),
		exchange(c.Exchange, "topic"), queueStep("queue", c.Queue, c.arguments()), bind(c.Queue, c.RoutingKey, c.Exchange),
	} {
		one, err := l.ensure(s, policy)
		if err != nil {
			return "", err
		}
		warning = cmp.Or(one, warning)
	}
	return warning, nil
}

// wrap says what was being done; nil for nil.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// channel opens a channel that confirms, for messages to an exchange with a routing key.
func (l *link) channel(exchange, key string) (*channel, error) {
	ch, err := l.conn.Channel()
	if err != nil {
		return nil, wrap("open a channel", err)
	}
	c := &channel{ch: ch, link: l, exchange: exchange, key: key, take: make(chan map[string]string), over: make(chan struct{}), back: map[string]string{}}
	go c.watchReturns(ch.NotifyReturn(make(chan amqp.Return)))
	if err := ch.Confirm(false); err != nil {
		return nil, wrap("ask for confirms", err)
	}
	return c, nil
}

// channel publishes with confirms and Returns. One caller at a time.
type channel struct {
	link          *link
	ch            *amqp.Channel
	exchange, key string
	take          chan map[string]string // what came back since the last time
	over          chan struct{}          // closed with the channel
	back          map[string]string      // what came back and nobody has asked for, by message id, with the reason
}

// watchReturns collects what came back, by message id, with the reason.
func (c *channel) watchReturns(returns <-chan amqp.Return) {
	defer close(c.over)
	back := map[string]string{}
	for {
		select {
		case r, open := <-returns:
			if !open {
				return
			}
			back[r.MessageId] = fmt.Sprintf("returned: %s", r.ReplyText)
		case c.take <- back:
			back = map[string]string{}
		}
	}
}

// returned are the messages that came back, until they are asked for. The library hands a Return over before the confirm of the same
// message: whoever saw that confirm finds it here.
func (c *channel) returned() map[string]string {
	select {
	case back := <-c.take:
		maps.Copy(c.back, back)
	case <-c.over:
	}
	return c.back
}

// result of one message, as rabbit_publish_total has it.
type result string

const (
	confirmed result = "confirmed"
	returned  result = "returned" // no queue is bound: confirmed all the same
	refused   result = "refused"  // the queue is full, was removed, or has lost its quorum
	timedOut  result = "timeout"  // no confirm in time: rabbit.publisher_timeout
	failed    result = "failed"   // no connection: rabbit.enqueue_failed
)

// sent is what became of a message.
type sent struct {
	result result
	reason string                     // of all but confirmed
	late   *amqp.DeferredConfirmation // of a timeout: it may still come
	took   time.Duration
}

// outgoing are messages that were published.
type outgoing struct {
	messages []amqp.Publishing
	out      []sent
	waits    []*amqp.DeferredConfirmation // nil: could not be published
	began    time.Time
	until    time.Time // so long their confirms are waited for
}

// begin publishes messages one after the other; wait for what becomes of them.
func (c *channel) begin(ctx context.Context, messages []amqp.Publishing) outgoing {
	o := outgoing{messages: messages, out: make([]sent, len(messages)), waits: make([]*amqp.DeferredConfirmation, len(messages)), began: time.Now()}
	for i, m := range messages {
		d, err := c.ch.PublishWithDeferredConfirmWithContext(ctx, c.exchange, c.key, true, false, m)
		if err != nil {
			o.out[i] = sent{result: failed, reason: err.Error()}
			continue
		}
		o.waits[i] = d
	}
	crash.Point("mirror.after_publish")
	o.until = time.Now().Add(c.link.cfg.PublishTimeout)
	return o
}

// wait waits for what became of all messages, at most the publish timeout.
func (c *channel) wait(ctx context.Context, o outgoing) []sent {
	limit, cancel := context.WithDeadline(ctx, o.until)
	defer cancel()
	for i, d := range o.waits {
		if d == nil {
			continue
		}
		ok, err := d.WaitContext(limit)
		switch took := time.Since(o.began); {
		case err != nil && ctx.Err() == nil:
			o.out[i] = sent{timedOut, fmt.Sprintf("no confirm within %s", c.link.cfg.PublishTimeout), d, took}
		case ok:
			o.out[i] = sent{result: confirmed, took: took}
		case c.ch.IsClosed():
			o.out[i] = sent{result: failed, reason: "the connection ended before the confirm"}
		case err != nil:
			o.out[i] = sent{result: failed, reason: err.Error()}
		default:
			o.out[i] = sent{result: refused, reason: "refused by the queue: it is full, was removed, or has lost its quorum"}
		}
	}
	back := c.returned()
	for i, m := range o.messages {
		if reason, came := back[m.MessageId]; came && o.out[i].result != failed {
			o.out[i] = sent{result: returned, reason: reason, took: o.out[i].took}
		}
	}
	for _, m := range o.messages {
		delete(back, m.MessageId)
	}
	return o.out
}

// send publishes messages and waits for what became of all of them.
func (c *channel) send(ctx context.Context, messages []amqp.Publishing) []sent {
	return c.wait(ctx, c.begin(ctx, messages))
}

// feed is a consumer of the queue: RabbitMQ sends it as many copies as may be taken at once, the oldest first. One for a channel, since
// copies of one consumer are acknowledged together: of others RabbitMQ drops, when the connection ends, what it has not yet passed on to
// a quorum queue (measured: all beyond 32).
type feed struct {
	c    *channel
	tag  string
	most int
	in   <-chan amqp.Delivery
}

// consume begins to take copies; stop it.
func (c *channel) consume(most int) (*feed, error) {
	f := &feed{c: c, tag: uuid.NewString(), most: most}
	err := c.link.limited(func() (err error) {
		if err = c.ch.Qos(most, 0, false); err == nil {
			f.in, err = c.ch.Consume(c.link.cfg.Queue, f.tag, false, false, false, false, nil)
		}
		return err
	})
	return f, wrap("take copies", err)
}

// take waits for copies; none: the queue is empty.
func (f *feed) take() ([]taken, error) { return f.wait(false) }

// wait waits for copies: for all that may be taken at once, or for those that come together. Fewer: the queue is empty.
func (f *feed) wait(all bool) (out []taken, err error) {
	wait := time.NewTimer(idle)
	defer wait.Stop()
	began := time.Now()
	for size := 0; len(out) < f.most && (all || size < mostTaken); {
		select {
		case d, open := <-f.in:
			if !open {
				return out, errors.New("take copies: the consumer was cancelled: the queue was removed, or the connection ended")
			}
			out, size = append(out, read(d)), size+len(d.Body)
			if wait.Reset(idle); !all {
				wait.Reset(gather)
			}
			continue
		case <-wait.C:
		}
		if len(out) > 0 && !all {
			return out, nil
		}
		switch n, err := f.c.ready(); {
		case err != nil:
			return out, err
		case n == 0:
			return out, nil
		case time.Since(began) > callTime:
			return out, fmt.Errorf("take copies: none came within %s of %d: the queue %s has no leader, or the server hangs", callTime, n, f.c.link.cfg.Queue)
		}
		wait.Reset(idle)
	}
	return out, nil
}

// stop ends the consumer and returns what it has still been sent. RabbitMQ gives back what is under way to a consumer that ends, and
// counts a delivery: so it first sends all that may be taken.
func (f *feed) stop() (rest []taken, err error) {
	if rest, err = f.wait(true); err != nil {
		return rest, err
	}
	err = f.c.link.limited(func() error { return f.c.ch.Cancel(f.tag, false) })
	for d := range f.in {
		rest = append(rest, read(d))
	}
	return rest, wrap("end taking copies", err)
}

// ready is how many copies nobody has taken.
func (c *channel) ready() (int, error) {
	q, err := c.queue()
	return q.Messages, err
}

// queue says how many copies nobody has taken, and how many consumers take some.
func (c *channel) queue() (q amqp.Queue, err error) {
	err = c.link.limited(func() (err error) {
		q, err = c.ch.QueueDeclarePassive(c.link.cfg.Queue, true, false, false, false, nil)
		return err
	})
	return q, wrap("ask for the queue's length", err)
}
