package streammq

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Members that tests drive by hand, step by step.

// member takes partition 0 of the rig's topic for a hand-driven member of group "g".
func (r *rig) member(q *MQ, name string) *reader {
	r.t.Helper()
	src := r.source(0)
	m := &reader{mq: q.core, src: src, group: "g", consumer: name, epoch: r.take(q, name)}
	err := r.client.Do(r.t.Context(), r.client.B().XgroupCreate().Key(src.stream()).Group("g").Id("0").Mkstream().Build()).Error()
	if !stream.IsError(err, "BUSYGROUP") {
		require.NoError(r.t, err)
	}
	return m
}

func (r *rig) take(q *MQ, name string) string {
	r.t.Helper()
	src := r.source(0)
	epoch, err := q.Run(r.t.Context(), q.scripts.LeaseTake, []string{src.lease("g"), src.epoch("g")}, name, "60000").ToString()
	require.NoError(r.t, err)
	return epoch
}

// expire is the end of a lease whose member does not know it yet.
func (r *rig) expire() { r.do("DEL", r.source(0).lease("g")) }

// steal gives the lease to another member with no moment between in which it is free: who has it may look just then.
func (r *rig) steal(q *MQ, name string) {
	r.t.Helper()
	r.do("SET", r.source(0).lease("g"), name, "PX", "60000")
	require.NotEmpty(r.t, r.take(q, name))
}

// next reads one batch of a hand-driven member.
func (r *rig) next(m *reader) fetched {
	r.t.Helper()
	got, err := m.fetch(context.Background(), 10)
	require.NoError(r.t, err)
	return got
}

func of(e raw) held { return held{e.id, e.deliveries} }

// handedOver is a delivery of A whose partition B has; B has not yet taken it over.
func handedOver(r *rig, q *MQ) (*reader, raw) {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	e := r.next(a).entries[0]
	r.expire()
	r.member(q, "b")
	return a, e
}

// onStream are two consumers of a single stream, the second having claimed what the first has read.
func onStream(r *rig, q *MQ) (first, second *reader, e raw) {
	key := r.topic + "-single"
	src := source{layout: r.layout, topic: key, single: true}
	r.do("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")
	r.do("XADD", key, "*", "payload", "p")
	first = &reader{mq: q.core, src: src, group: "g", consumer: "first"}
	second = &reader{mq: q.core, src: src, group: "g", consumer: "second"}
	e = r.next(first).entries[0]
	got, err := second.claim(context.Background(), 10, 0, nil)
	require.NoError(r.t, err)
	require.Len(r.t, got.entries, 1)
	return first, second, e
}

// later is a delivery that was put off until now.
func later(r *rig, q *MQ) *reader {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	got := r.next(a)
	parcels, err := a.unpack(context.Background(), got.entries)
	require.NoError(r.t, err)
	done, err := a.retryLater(context.Background(), of(got.entries[0]), parcels[0].entry, 1, 0)
	require.NoError(r.t, err)
	require.True(r.t, done)
	return a
}
