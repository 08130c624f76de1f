// Package embedded serves Kafka in the own process, for `millweir dev --queue kafka` and for tests that need no real broker.
//
// It keeps nothing on disk: after a restart the deliveries come back from the table (design D5). It is kfake, an imitation:
// no evidence for how Kafka replicates, retains or recovers.
package embedded

import (
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
)

// Broker is a cluster of one in this process.
type Broker struct {
	cluster *kfake.Cluster
	stop    func()
}

// Start serves on a free port of 127.0.0.1. Topics are made by Topic alone.
func Start() (*Broker, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return nil, fmt.Errorf("start embedded kafka: %w", err)
	}
	return &Broker{cluster: cluster, stop: sync.OnceFunc(cluster.Close)}, nil
}

// Bootstrap is the KAFKA_BOOTSTRAP_SERVERS for it.
func (b *Broker) Bootstrap() string { return strings.Join(b.cluster.ListenAddrs(), ",") }

// Topic makes a topic whose records carry the broker's time.
func (b *Broker) Topic(name string, partitions int) error {
	err := b.cluster.CreateTopic(name, int32(partitions), map[string]string{"message.timestamp.type": "LogAppendTime"})
	if err != nil {
		return fmt.Errorf("make topic %s: %w", name, err)
	}
	return nil
}

// Stop ends it; it may be called more than once.
func (b *Broker) Stop() { b.stop() }
