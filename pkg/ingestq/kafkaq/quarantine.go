package kafkaq

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/ingestq"
)

const (
	// quarantineAgain is the pause before a record that could not be put away is given out once more.
	quarantineAgain = time.Second
	// quarantineMax is what is kept of a record that the topic of dead letters does not take whole.
	quarantineMax = 64 << 10
)

// Quarantine implements ingestq.Consumer. What could not be written is read again after a moment, so that its partition's
// offset does not wait for the next start.
func (m *Member) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	at, ok := parseID(d.ID)
	if !ok {
		return nil
	}
	if err := m.putAway(ctx, d, at); err != nil {
		m.again(d, at)
		return failure(ctx, "quarantine "+d.ID, err)
	}
	m.metrics.deadLetters.Inc()
	m.metrics.quarantined.WithLabelValues(m.cfg.Topic).Inc()
	return m.Ack(ctx, d.ID)
}

// putAway writes the record; one that is too large with what we add to it is cut.
func (m *Member) putAway(ctx context.Context, d ingestq.Delivery, at place) error {
	record := quarantined(d, m.cfg.Topic, m.cfg.DLQTopic(), at)
	err := m.producer.send(ctx, []*sarama.ProducerMessage{record})[0]
	if !namesRecord(err) {
		return err
	}
	whole := d.Raw[rawValue]
	cut := ingestq.Delivery{Raw: map[string]string{
		rawValue: whole[:min(len(whole), quarantineMax)], rawError: fmt.Sprintf("cut from %d bytes: %s", len(whole), d.Raw[rawError]),
	}}
	return m.producer.send(ctx, []*sarama.ProducerMessage{quarantined(cut, m.cfg.Topic, m.cfg.DLQTopic(), at)})[0]
}

// again gives a record out once more, if its partition is still ours.
func (m *Member) again(d ingestq.Delivery, at place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.parts[at.partition]
	if p == nil || !p.window.holds(at.offset) {
		return
	}
	p.waiting = append(p.waiting, record{
		notBefore: m.now().Add(quarantineAgain),
		message: &sarama.ConsumerMessage{
			Topic: m.cfg.Topic, Partition: at.partition, Offset: at.offset, Key: []byte(d.Raw[rawKey]), Value: []byte(d.Raw[rawValue]),
		},
	})
}
