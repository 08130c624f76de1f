package mirror

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/telemetry"
)

const (
	lookTime = 2 * time.Second // of one look at all brokers: Prometheus itself waits 10 s
	mostLook = 4 << 20         // bytes of what is read of one broker's page
)

// The families of a broker's exporter that are read. The messages are told by the leader alone.
const (
	familyReady   = "rabbitmq_detailed_queue_messages_ready"
	familyUnacked = "rabbitmq_detailed_queue_messages_unacked"
	familyTerm    = "rabbitmq_detailed_raft_term"
	familyTermOld = "rabbitmq_detailed_raft_term_total" // of earlier versions than RabbitMQ 4
)

// brokers show what the brokers' exporters say of the queue, asked anew by each scrape. What no broker says is absent, never 0.
type brokers struct {
	urls         []string
	vhost, queue string
	client       *http.Client
	log          *telemetry.Repeated

	ready, unacked, members, changes *prometheus.Desc
}

func newBrokers(cfg Config, log *telemetry.Repeated) *brokers {
	b := &brokers{
		urls: cfg.MetricsURLs, vhost: cfg.VHost, queue: cfg.Queue, log: log,
		client: &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true}, // no connection is kept between two scrapes
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		ready:   prometheus.NewDesc("rabbit_messages_ready", "Messages of the queue that nobody has taken, as its leader's exporter says.", nil, nil),
		unacked: prometheus.NewDesc("rabbit_messages_unacknowledged", "Messages of the queue that were taken and not acknowledged, as its leader's exporter says.", nil, nil),
		members: prometheus.NewDesc("rabbit_quorum_members", "Members of the queue on brokers whose exporter was reached, by state (leader, follower).", []string{"state"}, nil),
		changes: prometheus.NewDesc("rabbit_quorum_leader_changes_total", "Elections of the queue's leader after the first: its Raft term less one. A queue that is declared anew begins at 0.", nil, nil),
	}
	if b.vhost == "" {
		uri, _ := amqp.ParseURI(cfg.URL) // checked by Validate
		b.vhost = uri.Vhost
	}
	return b
}

// Describe implements prometheus.Collector.
func (b *brokers) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{b.ready, b.unacked, b.members, b.changes} {
		ch <- d
	}
}

// member is the queue's member on a broker.
type member struct {
	term           float64
	counts         bool // it says how many messages there are
	ready, unacked float64
}

// Collect implements prometheus.Collector.
func (b *brokers) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	found := make([]*member, len(b.urls))
	var asking sync.WaitGroup
	for i, base := range b.urls {
		asking.Go(func() {
			m, err := b.ask(ctx, base)
			if err != nil {
				b.log.Log(ctx, slog.LevelWarn, base, "mirror: an exporter of RABBITMQ_METRICS_URLS was not read",
					slog.String("error", telemetry.Redact(err.Error())))
				return
			}
			b.log.Reset(base)
			found[i] = m
		})
	}
	asking.Wait()
	var leader *member
	members, term := 0, 0.0
	for _, m := range found {
		if m == nil {
			continue
		}
		members, term = members+1, max(term, m.term)
		if m.counts && (leader == nil || m.term > leader.term) { // one that was cut off from the others may still believe to lead
			leader = m
		}
	}
	if members == 0 {
		return
	}
	if leader != nil && leader.term < term {
		leader = nil
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ch <- prometheus.MustNewConstMetric(b.changes, prometheus.CounterValue, term-1)
	if leader != nil {
		gauge(b.ready, leader.ready)
		gauge(b.unacked, leader.unacked)
		gauge(b.members, 1, "leader")
		members--
	}
	if members > 0 {
		gauge(b.members, float64(members), "follower")
	}
}

// ask reads one exporter; nil: that broker has no member of the queue.
func (b *brokers) ask(ctx context.Context, base string) (*member, error) {
	query := url.Values{"vhost": {b.vhost}, "family": {"queue_coarse_metrics", "ra_metrics"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(base, "/")+"/metrics/detailed?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", req.URL.Redacted(), resp.StatusCode)
	}
	text, err := b.read(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", req.URL.Redacted(), err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("%s: not the text of an exporter: %w", req.URL.Redacted(), err)
	}
	term, there := b.value(families[familyTerm])
	if !there {
		term, there = b.value(families[familyTermOld])
	}
	if !there {
		return nil, nil //nolint:nilnil // no member here
	}
	m := &member{term: term}
	m.ready, m.counts = b.value(families[familyReady])
	m.unacked, _ = b.value(families[familyUnacked])
	return m, nil
}

// read leaves out the other families of an exporter's page: RabbitMQ 4 writes fifty lines for each queue.
func (b *brokers) read(page io.Reader) (*bytes.Buffer, error) {
	var kept bytes.Buffer
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		line := lines.Bytes()
		name, _, _ := bytes.Cut(line, []byte("{"))
		switch string(name) {
		default:
			if bytes.HasPrefix(line, []byte("#")) || bytes.HasPrefix(line, []byte("rabbitmq_")) {
				continue
			}
		case familyReady, familyUnacked, familyTerm, familyTermOld:
		}
		kept.Write(line)
		kept.WriteByte('\n')
		if kept.Len() > mostLook {
			return nil, fmt.Errorf("the page has more than %d bytes that are read", mostLook)
		}
	}
	return &kept, lines.Err()
}

// value is the queue's value of a family; false: the family does not have one.
func (b *brokers) value(family *dto.MetricFamily) (v float64, there bool) {
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["queue"] == b.queue && labels["vhost"] == b.vhost {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue(), true
		}
	}
	return 0, false
}
