package mirror

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Config is what an operator sets.
type Config struct {
	URL            string        // RABBITMQ_URL: amqp:// or amqps://
	VHost          string        // RABBITMQ_VHOST: wins over the URL's; empty: the URL's
	Exchange       string        // RABBITMQ_EXCHANGE: topic, durable
	Queue          string        // RABBITMQ_QUEUE: the quorum queue of the copies
	RoutingKey     string        // RABBITMQ_ROUTING_KEY
	DLX            string        // RABBITMQ_DLX: its queue has the same name with dlq for dlx
	Prefetch       int           // RABBITMQ_PREFETCH: most copies that are taken at once; by a visit ten times as many, up to 500
	PublishTimeout time.Duration // RABBITMQ_PUBLISH_TIMEOUT_MS: how long a confirm is waited for
	PublishRetries int           // RABBITMQ_PUBLISH_RETRIES: tries before a task has its row in mirror_failure
	DeliveryLimit  int           // RABBITMQ_DELIVERY_LIMIT
	QueueMaxLength int           // RABBITMQ_QUEUE_MAX_LENGTH: the publisher stops 1,000 below it
	Overflow       string        // RABBITMQ_QUEUE_OVERFLOW
	AuditStream    string        // RABBITMQ_AUDIT_STREAM: a stream that gets every change of every task; empty: none
	AuditDays      int           // RABBITMQ_AUDIT_DAYS: how long it keeps them
	MetricsURLs    []string      // RABBITMQ_METRICS_URLS: the brokers' exporters, http://host:15692 each; empty: none is read
}

// The names and figures of the contract.
const (
	reserve        = 1000 // copies below the maximum at which the publisher stops: a full queue refuses rotation too
	rejectPublish  = "reject-publish"
	initialMembers = 3
)

// NewDefaultConfig holds the defaults of contract §7.
func NewDefaultConfig(url string) Config {
	return Config{
		URL: url, Exchange: "rise.tasks.durable", Queue: "rise.tasks.quorum", RoutingKey: "rise.tasks", DLX: "rise.tasks.dlx", Prefetch: 50,
		PublishTimeout: 3 * time.Second, PublishRetries: 3, DeliveryLimit: 5, QueueMaxLength: 500_000, Overflow: rejectPublish,
		AuditDays: 30,
	}
}

// Validate returns every problem, joined; each begins with the variable's name. No secret is in it.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if _, err := amqp.ParseURI(c.URL); err != nil { // its text may have the password in it
		errs = append(errs, errors.New("RABBITMQ_URL: is not of the form amqp://user:password@host:5672/vhost (or amqps://); percent-encode special characters of the password"))
	}
	for name, value := range map[string]string{
		"RABBITMQ_EXCHANGE": c.Exchange, "RABBITMQ_QUEUE": c.Queue, "RABBITMQ_ROUTING_KEY": c.RoutingKey, "RABBITMQ_DLX": c.DLX,
	} {
		check(value != "" && len(value) <= 255 && !strings.HasPrefix(value, "amq."), "%s: %q is not a name of 1 to 255 bytes that does not begin with amq.", name, value)
	}
	check(len(c.AuditStream) <= 255 && !strings.HasPrefix(c.AuditStream, "amq.") && (c.AuditStream == "" || c.AuditStream != c.Queue),
		"RABBITMQ_AUDIT_STREAM: %q is not a name of up to 255 bytes that does not begin with amq. and is not RABBITMQ_QUEUE's", c.AuditStream)
	check(c.AuditDays >= 1, "RABBITMQ_AUDIT_DAYS: %d is not positive", c.AuditDays)
	check(c.Prefetch >= 1 && c.Prefetch <= 1000, "RABBITMQ_PREFETCH: %d is not 1–1000", c.Prefetch)
	check(c.PublishTimeout > 0, "RABBITMQ_PUBLISH_TIMEOUT_MS: %s is not positive", c.PublishTimeout)
	check(c.PublishRetries >= 1, "RABBITMQ_PUBLISH_RETRIES: %d is not positive", c.PublishRetries)
	check(c.DeliveryLimit >= 1, "RABBITMQ_DELIVERY_LIMIT: %d is not positive", c.DeliveryLimit)
	check(c.QueueMaxLength > reserve, "RABBITMQ_QUEUE_MAX_LENGTH: %d is not above %d: the mirror stops so many below it", c.QueueMaxLength, reserve)
	check(c.Overflow == rejectPublish, "RABBITMQ_QUEUE_OVERFLOW: %q is not %s: a full queue would throw copies away", c.Overflow, rejectPublish)
	for i, one := range c.MetricsURLs { // its text may have a password in it
		u, err := url.Parse(one)
		check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "",
			"RABBITMQ_METRICS_URLS: number %d is not of the form http://host:15692 (or https://)", i+1)
	}
	return errors.Join(errs...)
}

// dlq is the queue of the dead letter exchange.
func (c Config) dlq() string { return strings.TrimSuffix(c.DLX, ".dlx") + ".dlq" }

// arguments are those of the queue of the copies. Without x- RabbitMQ accepts and ignores them.
func (c Config) arguments() amqp.Table {
	return amqp.Table{
		"x-queue-type": "quorum", "x-quorum-initial-group-size": int64(initialMembers), "x-dead-letter-exchange": c.DLX,
		"x-delivery-limit": int64(c.DeliveryLimit), "x-max-length": int64(c.QueueMaxLength), "x-overflow": c.Overflow,
	}
}
