package produce

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"sync/atomic"
	"unicode/utf16"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Partitioner chooses a message's partition, 0 … partitions-1. Implementations are safe for concurrent use.
// A message's HeaderForcePartition goes before every partitioner.
type Partitioner interface {
	Partition(m *model.Message, partitions int) (int, error)
}

// NewHash is the default partitioner: FNV-1a of the key modulo the partitions; messages without a key are spread in turn.
func NewHash() Partitioner {
	return &keyed{pick: func(key string, partitions int) int {
		return int(Fnv64(key) % uint64(partitions)) //nolint:gosec // at most MaxPartitions
	}}
}

// NewConsistentHash moves only 1/n of the keys when a topic grows from n-1 to n partitions (jump consistent hash,
// Lamping and Veach 2014); messages without a key are spread in turn.
func NewConsistentHash() Partitioner {
	return &keyed{pick: func(key string, partitions int) int { return Jump(Fnv64(key), partitions) }}
}

// NewJavaHash is String.hashCode modulo the partitions, as the Java original computes it; messages without a key are
// spread in turn.
func NewJavaHash() Partitioner {
	return &keyed{pick: func(key string, partitions int) int { return within(int(JavaHash(key)), partitions) }}
}

// within is n modulo the partitions, never below zero.
func within(n, partitions int) int {
	if n %= partitions; n < 0 {
		n += partitions
	}
	return n
}

// NewRoundRobin spreads messages in turn, whatever their key: no order is kept.
func NewRoundRobin() Partitioner { return &roundRobin{} }

// NewExplicit refuses messages without a number in HeaderForcePartition.
func NewExplicit() Partitioner { return explicit{} }

type keyed struct {
	pick   func(key string, partitions int) int
	spread roundRobin
}

func (k *keyed) Partition(m *model.Message, partitions int) (int, error) {
	if m.Key == "" {
		return k.spread.Partition(m, partitions)
	}
	return k.pick(m.Key, partitions), nil
}

type roundRobin struct{ next atomic.Uint64 }

func (r *roundRobin) Partition(_ *model.Message, partitions int) (int, error) {
	return int((r.next.Add(1) - 1) % uint64(partitions)), nil //nolint:gosec // at most MaxPartitions
}

type explicit struct{}

func (explicit) Partition(*model.Message, int) (int, error) {
	return 0, fmt.Errorf("no number in the header %s: %w", model.HeaderForcePartition, model.ErrPartition)
}

// Choose obeys HeaderForcePartition, any whole number of 32 bits, modulo the partitions; what is no number is not there, as in
// the Java original. Otherwise the partitioner chooses, which is checked.
func Choose(p Partitioner, m *model.Message, partitions int) (int, error) {
	if forced, ok := m.Headers[model.HeaderForcePartition]; ok {
		if n, err := strconv.ParseInt(forced, 10, 32); err == nil {
			return within(int(n), partitions), nil
		}
	}
	n, err := p.Partition(m, partitions)
	if err == nil && (n < 0 || n >= partitions) {
		err = fmt.Errorf("partitioner chose %d: %w: 0 to %d", n, model.ErrPartition, partitions-1)
	}
	return n, err
}

func Fnv64(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

func Jump(key uint64, buckets int) int {
	b, j := int64(-1), int64(0)
	for j < int64(buckets) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64(key>>33+1)))
	}
	return int(b)
}

// JavaHash is String.hashCode: 31·h + c over the UTF-16 units, in 32 bits.
func JavaHash(s string) int32 {
	var h int32
	for _, unit := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(unit)
	}
	return h
}
