package rival

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
)

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
