// Package stage is what scenes are played with: services in a world, a load, faults, an echo, and the judge.
package stage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

// Stage is what a drill works with.
type Stage struct {
	Bench  *world.Bench
	Name   string
	Load   time.Duration // how long a drill keeps its load and its faults up
	Random *rand.Rand
	Said   *Notebook // what the checker said of this drill
	Transport
	Postgres bool // in MariaDB's place
	// defaults leaves the services' settings as they are: none is shortened.
	Defaults bool
}

// Transport is where deliveries travel.
type Transport struct {
	Name       string   // the first word of a drill's name
	Services   []string // one of each, and a second worker
	Partitions int      // of the topic; 0: one stream
	Kafka      bool
	RabbitMQ   bool     // copies of the tasks are kept there
	Rules      []string // that have something to judge on it, besides those of every transport
	Without    []string // rules of the others that have nothing to judge on it
}

// The transports.
var (
	Redis      = Transport{Name: "main", Services: []string{"ingest-api", "stream-worker", "stream-worker", "reclaimer"}}
	Partitions = Transport{Name: "streammq", Services: Redis.Services, Partitions: 4, Rules: []string{"I31", "I32", "I33"}}
	Mirror     = Transport{Name: "mirror", Services: append(slices.Clone(Redis.Services), "stream-mirror", "stream-mirror"), RabbitMQ: true, Rules: []string{"I22"}}
	Kafka      = Transport{Name: "kafka", Services: []string{"ingest-api", "outbox-relay", "kafka-consumer", "kafka-consumer", "reclaimer"}, Kafka: true, Rules: []string{"I15", "I21", "L5", "I16", "L3"},
		Without: []string{"I17", "I19", "I20", "L4", "L6"}}
)

// All are the transports, in the order of the matrix.
var All = []Transport{Redis, Kafka, Partitions, Mirror}

// On is the transport of a name. Errors: there is none.
func On(name string) (Transport, error) {
	for _, t := range All {
		if t.Name == name {
			return t, nil
		}
	}
	return Transport{}, fmt.Errorf("no transport is called %q", name)
}

// Least is how many documents the stage's load must bring in.
func (s *Stage) Least() int { return int(s.Load.Seconds()) * leastAccepted }

// Rounds repeats a fault until the stage's load is over; it returns how often.
func (s *Stage) Rounds(ctx context.Context, fault func(round int) error) (n int, err error) {
	for end := time.Now().Add(s.Load); time.Now().Before(end) && ctx.Err() == nil && err == nil; n++ {
		err = fault(n)
	}
	return n, err
}

// Between pauses for a random time.
func (s *Stage) Between(ctx context.Context, least, most time.Duration) {
	await.Pause(ctx, least+time.Duration(s.Random.Int64N(int64(most-least)+1)))
}

// One picks a running process of a service.
func (s *Stage) One(c *Cluster, service string) *proc.Proc {
	running := c.Of(service)
	return running[s.Random.IntN(len(running))]
}
