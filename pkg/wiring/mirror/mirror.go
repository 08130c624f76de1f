// Package mirror puts together what keeps copies of unfinished tasks in RabbitMQ.
package mirror

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/mirror"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wiring"
	"github.com/millweir/millweir/pkg/wiring/database"
)

// Rabbit says where the copies are kept, and how.
type Rabbit struct {
	URL            process.DSN `envconfig:"RABBITMQ_URL" desc:"RabbitMQ, amqp:// or amqps://user:password@host:5672/vhost"`
	VHost          string      `envconfig:"RABBITMQ_VHOST" desc:"virtual host; wins over that of RABBITMQ_URL"`
	Exchange       string      `envconfig:"RABBITMQ_EXCHANGE" default:"rise.tasks.durable" desc:"topic exchange of the copies"`
	Queue          string      `envconfig:"RABBITMQ_QUEUE" default:"rise.tasks.quorum" desc:"quorum queue of the copies"`
	RoutingKey     string      `envconfig:"RABBITMQ_ROUTING_KEY" default:"rise.tasks" desc:"routing key of the copies"`
	DLX            string      `envconfig:"RABBITMQ_DLX" default:"rise.tasks.dlx" desc:"dead letter exchange; its queue has dlq for dlx in its name"`
	Prefetch       int         `envconfig:"RABBITMQ_PREFETCH" default:"50" allowed:"1..1000" desc:"most copies that are taken at once; a round of the rehydrator takes ten times as many, up to 500"`
	TimeoutMS      int         `envconfig:"RABBITMQ_PUBLISH_TIMEOUT_MS" default:"3000" allowed:"1..600000" desc:"how long a confirm is waited for"`
	Retries        int         `envconfig:"RABBITMQ_PUBLISH_RETRIES" default:"3" allowed:"1..100" desc:"tries before a task counts as one without a copy"`
	DeliveryLimit  int         `envconfig:"RABBITMQ_DELIVERY_LIMIT" default:"5" allowed:"1..1000000" desc:"deliveries of a copy without an acknowledgement after which RabbitMQ makes it a dead letter"`
	QueueMaxLength int         `envconfig:"RABBITMQ_QUEUE_MAX_LENGTH" default:"500000" allowed:"1001..1000000000" desc:"most copies; the mirror stops 1,000 below"`
	Overflow       string      `envconfig:"RABBITMQ_QUEUE_OVERFLOW" default:"reject-publish" allowed:"reject-publish" desc:"what a full queue does"`
}

// Config is package mirror's view of the settings.
func (r Rabbit) Config() mirror.Config {
	c := mirror.NewDefaultConfig(r.URL.Reveal())
	c.VHost, c.Exchange, c.Queue, c.RoutingKey, c.DLX = r.VHost, r.Exchange, r.Queue, r.RoutingKey, r.DLX
	c.Prefetch, c.PublishTimeout, c.PublishRetries = r.Prefetch, wiring.MS(r.TimeoutMS), r.Retries
	c.DeliveryLimit, c.QueueMaxLength, c.Overflow = r.DeliveryLimit, r.QueueMaxLength, r.Overflow
	return c
}

// Validate says that RabbitMQ is needed, and that its address and names can be ones.
func (r Rabbit) Validate() error {
	if r.URL.Empty() {
		return process.BadSetting("RABBITMQ_URL", "is not set: the copies are kept in RabbitMQ")
	}
	return r.Config().Validate()
}

// Exporters say where the brokers' own figures are.
type Exporters struct {
	URLs process.DSN `envconfig:"RABBITMQ_METRICS_URLS" desc:"exporters of the brokers (plugin rabbitmq_prometheus), http://host:15692 each, comma separated; what they say of the queue is shown as rabbit_*"`
}

// Audit says where every change of every task is appended.
type Audit struct {
	Stream string `envconfig:"RABBITMQ_AUDIT_STREAM" desc:"stream of RabbitMQ that gets every change of every task, such as rise.tasks.audit; empty: none"`
	Days   int    `envconfig:"RABBITMQ_AUDIT_DAYS" default:"30" allowed:"1..36500" desc:"how long the audit stream keeps a change"`
}

// Settings are those of stream-mirror.
type Settings struct {
	Store     database.Settings
	Rabbit    Rabbit
	Audit     Audit
	Exporters Exporters
}

// config is package mirror's view of the settings.
func (s *Settings) config() mirror.Config {
	c := s.Rabbit.Config()
	c.AuditStream, c.AuditDays = s.Audit.Stream, s.Audit.Days
	for one := range strings.SplitSeq(s.Exporters.URLs.Reveal(), ",") {
		if one = strings.TrimSpace(one); one != "" {
			var broker process.DSN
			_ = broker.UnmarshalText([]byte(one)) // hides its password in whatever this process says
			c.MetricsURLs = append(c.MetricsURLs, broker.Reveal())
		}
	}
	return c
}

// Validate joins the problems of all parts.
func (s *Settings) Validate() error {
	if err := errors.Join(s.Store.Validate(), s.Rabbit.Validate()); err != nil {
		return err
	}
	return s.config().Validate()
}

// Run is the body of stream-mirror: it compares rows with copies until ctx ends.
func Run(ctx context.Context, env *process.Env, s *Settings) error {
	b := wiring.New(env)
	defer b.Close()
	db, err := database.Connect(ctx, b, s.Store, nil)
	if err != nil {
		return err
	}
	m, err := mirror.New(s.config(), mirror.Deps{
		DB: db.Store, Name: env.Name, Log: env.Log, Metrics: env.Metrics, Clock: time.Now,
	})
	if err != nil {
		return err
	}
	env.Ready.Register("rabbitmq", func(context.Context) error {
		warning, err := m.Health()
		if err == nil && warning != "" {
			return process.Warning(warning)
		}
		return err
	})
	if !db.WaitForSchema(ctx) {
		return nil
	}
	return process.RunAll(ctx, process.Named("mirror", m))
}
