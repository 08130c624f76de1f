package kafkaq

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"github.com/xdg-go/scram"

	"github.com/millweir/millweir/pkg/outbox"
)

// Defaults of contract §5, and the bounds of one call: what a broker has not answered by then is tried again later.
const (
	defaultGroup = "ingest-workers"
	clientID     = "millweir" // how the brokers' logs name this process

	dialTimeout = 3 * time.Second
	callTimeout = 5 * time.Second // of one request to a broker
)

// DefaultTopic is the topic of deliveries unless INGEST_KAFKA_TOPIC names another.
const DefaultTopic = "ingest-tasks"

// The mechanisms of KAFKA_SASL_MECHANISM.
const (
	MechanismNone   = ""
	MechanismPlain  = "PLAIN"
	MechanismSHA256 = "SCRAM-SHA-256"
	MechanismSHA512 = "SCRAM-SHA-512"
)

// Config is what an operator sets.
type Config struct {
	// Brokers are host:port addresses, of which one that answers is enough.
	Brokers []string
	// TLS talks to the brokers over TLS with the system's roots (SSL_CERT_FILE names others).
	TLS bool
	// Mechanism, User and Password are for SASL; an empty mechanism is none.
	Mechanism, User, Password string
	// Topic and Group name the topic of deliveries and the consumer group.
	Topic, Group string
	// SessionTimeout is how long a member may be silent before the group goes on without it; 0: 10 s.
	SessionTimeout time.Duration

	roots *x509.CertPool // nil: the system's
}

// NewDefaultConfig is the configuration of contract §7 for the brokers of KAFKA_BOOTSTRAP_SERVERS.
func NewDefaultConfig(bootstrap string) Config {
	return Config{Brokers: Brokers(bootstrap), Topic: DefaultTopic, Group: defaultGroup}
}

// Brokers splits KAFKA_BOOTSTRAP_SERVERS.
func Brokers(bootstrap string) []string {
	var out []string
	for _, b := range strings.Split(bootstrap, ",") {
		if b = strings.TrimSpace(b); b != "" {
			out = append(out, b)
		}
	}
	return out
}

// DLQTopic is the topic of dead letters.
func (c Config) DLQTopic() string { return outbox.DLQTopic(c.Topic) }

// Validate names every setting that is out of its range.
func (c Config) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(len(c.Brokers) == 0, "KAFKA_BOOTSTRAP_SERVERS: must name at least one host:port")
	for _, b := range c.Brokers {
		_, port, err := net.SplitHostPort(b)
		refuse(err != nil || port == "", "KAFKA_BOOTSTRAP_SERVERS: %q is not host:port", b)
	}
	refuse(!topicName(c.Topic), "INGEST_KAFKA_TOPIC: %q, must be 1 to %d of a-z A-Z 0-9 . _ -", c.Topic, maxTopic-len(outbox.DLQTopic("")))
	refuse(c.Group == "", "INGEST_KAFKA_GROUP: must not be empty")
	known := []string{MechanismNone, MechanismPlain, MechanismSHA256, MechanismSHA512}
	refuse(!slices.Contains(known, c.Mechanism), "KAFKA_SASL_MECHANISM: %q, allowed is %s", c.Mechanism, strings.Join(known[1:], ", "))
	refuse(c.Mechanism != "" && c.User == "", "KAFKA_SASL_USER: must be set with KAFKA_SASL_MECHANISM")
	refuse(c.Mechanism != "" && c.Password == "", "KAFKA_SASL_PASSWORD: must be set with KAFKA_SASL_MECHANISM")
	refuse(c.Mechanism == "" && c.User+c.Password != "", "KAFKA_SASL_MECHANISM: must be set with KAFKA_SASL_USER and KAFKA_SASL_PASSWORD")
	return errors.Join(errs...)
}

// maxTopic is Kafka's longest topic name.
const maxTopic = 249

// topicName tells whether Kafka takes the name, with room for the dead letters' suffix.
func topicName(name string) bool {
	if name == "" || name == "." || name == ".." || len(outbox.DLQTopic(name)) > maxTopic {
		return false
	}
	for _, r := range name {
		if !strings.ContainsRune("._-", r) && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return false
		}
	}
	return true
}

// The client's own figures run a goroutine for ever and are shown nowhere: ours are in metrics.go.
func init() { metrics.UseNilMetrics = true }

// client makes the library's configuration.
func (c Config) client() *sarama.Config {
	s := sarama.NewConfig()
	s.Version = sarama.V3_6_0_0 // the newest protocol that is spoken; older brokers are asked what they know
	s.ClientID = clientID
	s.Net.DialTimeout, s.Net.ReadTimeout, s.Net.WriteTimeout = dialTimeout, callTimeout, callTimeout
	s.Metadata.Full = false                   // no broker is asked before somebody wants something of it
	s.Metadata.AllowAutoTopicCreation = false // topics are made by `millweir kafka init`, never by accident
	s.Metadata.Retry.Max, s.Metadata.Retry.Backoff = 1, 100*time.Millisecond
	s.Metadata.Timeout = callTimeout
	s.Metadata.RefreshFrequency = time.Minute
	s.Net.TLS.Enable = c.TLS
	if c.TLS {
		s.Net.TLS.Config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.roots}
	}
	if c.Mechanism != MechanismNone {
		s.Net.SASL.Enable, s.Net.SASL.User, s.Net.SASL.Password = true, c.User, c.Password
		s.Net.SASL.Mechanism = sarama.SASLMechanism(c.Mechanism)
		s.Net.SASL.SCRAMClientGeneratorFunc = scramClient(c.Mechanism)
	}
	return s
}

// scramSession is one login.
type scramSession struct {
	hash scram.HashGeneratorFcn
	talk *scram.ClientConversation
}

// scramClient makes the logins of a mechanism; the others are the library's own.
func scramClient(mechanism string) func() sarama.SCRAMClient {
	hash := scram.SHA256
	if mechanism == MechanismSHA512 {
		hash = scram.SHA512
	}
	return func() sarama.SCRAMClient { return &scramSession{hash: hash} }
}

// Begin implements sarama.SCRAMClient.
func (s *scramSession) Begin(user, password, authz string) error {
	client, err := s.hash.NewClient(user, password, authz)
	if err != nil {
		return err
	}
	s.talk = client.NewConversation()
	return nil
}

// Step implements sarama.SCRAMClient.
func (s *scramSession) Step(challenge string) (string, error) { return s.talk.Step(challenge) }

// Done implements sarama.SCRAMClient.
func (s *scramSession) Done() bool { return s.talk.Done() }
