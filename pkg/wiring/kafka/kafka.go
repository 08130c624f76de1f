// Package kafka links the Kafka transport: a delivery is an event of the row's own transaction, which a relay sends.
package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/queue"
)

func init() {
	queue.Register(queue.Link{
		Kind: queue.Kafka,
		Validate: func(s queue.Settings, k queue.KafkaSettings) error {
			if s.Kind != queue.Kafka {
				return nil
			}
			return Validate(k)
		},
		Open: func(b *wiring.Base, s queue.Settings, k queue.KafkaSettings) (queue.Transport, error) {
			if s.Kind != queue.Kafka || k.Bootstrap == "" {
				return nil, nil //nolint:nilnil // there is none, which is no error
			}
			return Open(b, k)
		},
	})
}

// Config is kafkaq's view of the settings.
func Config(k queue.KafkaSettings) kafkaq.Config {
	c := kafkaq.NewDefaultConfig(k.Bootstrap)
	c.TLS, c.Mechanism, c.User, c.Password = k.TLS, k.Mechanism, k.User, k.Password.Reveal()
	c.Topic, c.Group = k.Topic, k.Group
	return c
}

// Validate says that Kafka is needed, and that its settings can be ones.
func Validate(k queue.KafkaSettings) error {
	if k.Bootstrap == "" {
		return process.BadSetting("KAFKA_BOOTSTRAP_SERVERS", "is not set: INGEST_QUEUE=kafka carries deliveries over Kafka, and the relay sends there")
	}
	return Config(k).Validate()
}

// Transport is Kafka, which KAFKA_BOOTSTRAP_SERVERS names.
type Transport struct {
	Client   *kafkaq.Client
	Producer *kafkaq.Producer

	base  *wiring.Base
	topic string
}

var _ queue.Transport = (*Transport)(nil)

// Of returns the Kafka of a set; nil: another transport carries deliveries.
func Of(s queue.Set) *Transport {
	t, _ := s[queue.Kafka].(*Transport)
	return t
}

// Open makes the client and the producer.
func Open(b *wiring.Base, k queue.KafkaSettings) (*Transport, error) {
	client, err := kafkaq.NewClient(Config(k))
	if err != nil {
		return nil, fmt.Errorf("KAFKA_*: %w", err)
	}
	b.Later(client.Close)
	t := &Transport{client, kafkaq.NewProducer(client), b, k.Topic}
	b.Later(t.Producer.Close)
	return t, nil
}

// Describe implements queue.Transport.
func (t *Transport) Describe() string { return "kafka topic " + t.topic }

// Keeps implements queue.Transport. Events are sent with acks=all; what that is worth is the topic's min.insync.replicas.
func (*Transport) Keeps(context.Context) (string, error) { return "acks=all", nil }

// Version implements queue.Transport: a broker tells which requests it knows, not which release it is.
func (*Transport) Version(context.Context) (product, version string, err error) {
	return "Kafka", "", nil
}

// Publisher implements queue.Transport.
func (t *Transport) Publisher() (ingestq.Publisher, queue.Length, error) {
	t.base.Watch(t.Client.Collector(time.Now))
	return nil, t.Client, nil
}

// Member implements queue.Transport.
func (t *Transport) Member(queue.Membership) (ingestq.Consumer, error) {
	t.base.Watch(t.Client.Collector(time.Now))
	return kafkaq.New(t.Client, t.Producer, t.base.Env.Log, time.Now, kafkaq.NewMetrics(t.base.Env.Metrics)), nil
}

// Inspector implements queue.Transport.
func (t *Transport) Inspector() ingestq.Inspector { return kafkaq.NewInspector(t.Client) }

// DeadLetters implements queue.Transport: the records that could not be read.
func (t *Transport) DeadLetters() ingestq.DeadLetterReader {
	return kafkaq.NewDeadLetters(t.Client, t.Producer)
}

// DeadLetterWriter implements queue.Transport: a dead letter is an event.
func (*Transport) DeadLetterWriter() ingestq.DeadLetterWriter { return nil }
