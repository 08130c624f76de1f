package rival

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmredis "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

const (
	topic           = "t"
	consumers       = "g"
	wmSubscribers   = 16  // watermill-redisstream reads one message at a time, so that many subscribers read side by side
	wmSQLBatch      = 100 // its default
	wmSQLPause      = 10 * time.Millisecond
	wmSQLPayloadSQL = "VARBINARY(2000)" // its default, JSON, is slower
)

// forward handles and acknowledges the messages of one subscription.
func forward(wg *sync.WaitGroup, messages <-chan *message.Message, handle func([]byte)) {
	wg.Go(func() {
		for m := range messages {
			handle(m.Payload)
			m.Ack()
		}
	})
}

// watermillRedis is watermill-redisstream: a stream with a consumer group and nothing else.
type watermillRedis struct {
	cfg  Config
	pub  *wmredis.Publisher
	look *redis.Client
}

// Prepare implements System.
func (s *watermillRedis) Prepare(ctx context.Context) error {
	s.Close()
	if err := flushRedis(ctx, s.cfg.Redis); err != nil {
		return err
	}
	s.look = redis.NewClient(&redis.Options{Addr: s.cfg.Redis})
	var err error
	s.pub, err = wmredis.NewPublisher(wmredis.PublisherConfig{
		Client: redis.NewClient(&redis.Options{Addr: s.cfg.Redis, PoolSize: 2 * s.cfg.Workers}),
	}, watermill.NopLogger{})
	return errors.Join(err, s.look.XGroupCreateMkStream(ctx, topic, consumers, "0").Err())
}

// Submit implements System.
func (s *watermillRedis) Submit(ctx context.Context, n int) error {
	return each(ctx, n, s.cfg.Workers, func(ctx context.Context, _ int) error { return s.Send(ctx, Payload(0), func() {}) })
}

// Send implements System.
func (s *watermillRedis) Send(_ context.Context, payload []byte, committed func()) error {
	err := s.pub.Publish(topic, message.NewMessage(watermill.NewShortUUID(), payload))
	committed()
	return err
}

// Work implements System.
func (s *watermillRedis) Work(ctx context.Context, handle func([]byte)) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var closers []func() error
	stop := func() error {
		cancel()
		var errs []error
		for _, f := range closers {
			errs = append(errs, f())
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	for i := range min(s.cfg.Workers, wmSubscribers) {
		sub, err := wmredis.NewSubscriber(wmredis.SubscriberConfig{
			Client:        redis.NewClient(&redis.Options{Addr: s.cfg.Redis}),
			ConsumerGroup: consumers, Consumer: "c" + strconv.Itoa(i),
		}, watermill.NopLogger{})
		if err != nil {
			return stop, err
		}
		closers = append(closers, sub.Close)
		messages, err := sub.Subscribe(ctx, topic)
		if err != nil {
			return stop, err
		}
		forward(&wg, messages, handle)
	}
	return stop, nil
}

// Drained implements System.
func (s *watermillRedis) Drained(ctx context.Context, _ int) (bool, error) {
	groups, err := s.look.XInfoGroups(ctx, topic).Result()
	return err == nil && len(groups) == 1 && groups[0].Pending == 0 && groups[0].Lag == 0, err
}

// Close implements System.
func (s *watermillRedis) Close() {
	if s.pub != nil {
		_ = errors.Join(s.pub.Close(), s.look.Close()) // only connections
	}
	s.pub, s.look = nil, nil
}

// watermillSQL is watermill-sql on MariaDB: one ordered reader for each consumer group, by its design.
type watermillSQL struct {
	cfg      Config
	database string
	batch    int // messages of one SELECT
	db       *sql.DB
	pub      *wmsql.Publisher
	schema   wmsql.DefaultMySQLSchema
	offsets  wmsql.DefaultMySQLOffsetsAdapter
}

// Prepare implements System.
func (s *watermillSQL) Prepare(ctx context.Context) error {
	s.Close()
	dsn, err := freshMySQL(ctx, s.cfg.MySQL, s.database)
	if err != nil {
		return err
	}
	if s.db, err = openMySQL(ctx, dsn, s.cfg.Workers); err != nil {
		return err
	}
	s.schema = wmsql.DefaultMySQLSchema{SubscribeBatchSize: s.batch, GeneratePayloadType: func(string) string { return wmSQLPayloadSQL }}
	s.pub, err = wmsql.NewPublisher(s.db, wmsql.PublisherConfig{SchemaAdapter: s.schema, AutoInitializeSchema: true}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	sub, err := s.subscriber()
	if err != nil {
		return err
	}
	return errors.Join(sub.SubscribeInitialize(topic), sub.Close())
}

func (s *watermillSQL) subscriber() (*wmsql.Subscriber, error) {
	return wmsql.NewSubscriber(s.db, wmsql.SubscriberConfig{
		ConsumerGroup: consumers, SchemaAdapter: s.schema, OffsetsAdapter: s.offsets, InitializeSchema: true,
		PollInterval: wmSQLPause, RetryInterval: wmSQLPause, ResendInterval: wmSQLPause,
	}, watermill.NopLogger{})
}

// Submit implements System.
func (s *watermillSQL) Submit(ctx context.Context, n int) error {
	return inChunks(ctx, n, bulk, bulkers, func(_ context.Context, size int) error {
		messages := make([]*message.Message, size)
		for i := range messages {
			messages[i] = message.NewMessage(watermill.NewUUID(), Payload(0))
		}
		return s.pub.Publish(topic, messages...)
	})
}

// Send implements System.
func (s *watermillSQL) Send(_ context.Context, payload []byte, committed func()) error {
	err := s.pub.Publish(topic, message.NewMessage(watermill.NewUUID(), payload))
	committed()
	return err
}

// Work implements System.
func (s *watermillSQL) Work(ctx context.Context, handle func([]byte)) (func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	sub, err := s.subscriber()
	if err != nil {
		cancel()
		return nil, err
	}
	var wg sync.WaitGroup
	stop := func() error {
		cancel()
		err := sub.Close()
		wg.Wait()
		return err
	}
	messages, err := sub.Subscribe(ctx, topic)
	if err == nil {
		forward(&wg, messages, handle)
	}
	return stop, err
}

// Drained implements System.
func (s *watermillSQL) Drained(ctx context.Context, n int) (bool, error) {
	var acked sql.NullInt64
	err := s.db.QueryRowContext(ctx, "SELECT MAX(offset_acked) FROM "+s.offsets.MessagesOffsetsTable(topic)).Scan(&acked)
	return acked.Int64 >= int64(n), err
}

// Close implements System.
func (s *watermillSQL) Close() {
	if s.db != nil {
		_ = errors.Join(s.pub.Close(), s.db.Close()) // only connections
	}
	s.db, s.pub = nil, nil
}

// watermillForwarder is watermill's outbox: enveloped messages that a publisher of watermill-sql writes in the transaction of
// its caller, and a daemon that reads them in order and waits for the broker's answer to each. A second daemon of the same
// group would only wait for the first one's lock, so there is one.
type watermillForwarder struct{ watermillSQL }

func newForwarder(cfg Config) *watermillForwarder {
	return &watermillForwarder{watermillSQL{cfg: cfg, database: "peers_forwarder", batch: largeBatch}}
}

// Submit implements System.
func (s *watermillForwarder) Submit(ctx context.Context, n int) error {
	return oneByOne(ctx, s, s.cfg, n)
}

// Send implements System.
func (s *watermillForwarder) Send(ctx context.Context, payload []byte, committed func()) error {
	err := inTransaction(ctx, s.db, func(tx *sql.Tx) error {
		rows, err := wmsql.NewPublisher(tx, wmsql.PublisherConfig{SchemaAdapter: s.schema}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		return forwarder.NewPublisher(rows, forwarder.PublisherConfig{ForwarderTopic: topic}).
			Publish(relayed, message.NewMessage(watermill.NewUUID(), payload))
	})
	committed()
	return err
}

// Work implements System.
func (s *watermillForwarder) Work(ctx context.Context, handle func([]byte)) (func() error, error) {
	sub, err := s.subscriber()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	daemon, err := forwarder.NewForwarder(sub, destination{answering{handle}}, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: topic})
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx) }()
	return func() error {
		cancel()
		return errors.Join(daemon.Close(), <-ended, sub.Close())
	}, nil
}

// destination is the stand-in broker as watermill sees it.
type destination struct{ answering }

// Publish implements message.Publisher.
func (d destination) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := d.answer(m.Context(), m.Payload); err != nil {
			return err
		}
	}
	return nil
}

// Close implements message.Publisher.
func (destination) Close() error { return nil }
