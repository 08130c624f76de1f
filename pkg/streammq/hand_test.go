package streammq

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Members that tests drive by hand, step by step.

// member takes partition 0 of the rig's topic for a hand-driven member of group "g".
func (r *rig) member(q *MQ, name string) *fence.Reader {
	r.t.Helper()
	src := r.source(0)
	m := &fence.Reader{Mq: q.core, Src: src, Group: "g", Consumer: name, Epoch: r.take(q, name)}
	err := r.client.Do(r.t.Context(), r.client.B().XgroupCreate().Key(src.Stream()).Group("g").Id("0").Mkstream().Build()).Error()
	if !stream.IsError(err, "BUSYGROUP") {
		require.NoError(r.t, err)
	}
	return m
}

func (r *rig) take(q *MQ, name string) string {
	r.t.Helper()
	src := r.source(0)
	epoch, err := q.core.Run(r.t.Context(), q.core.Scripts.LeaseTake, []string{src.Lease("g"), src.Epoch("g")}, name, "60000").ToString()
	require.NoError(r.t, err)
	return epoch
}

// expire is the end of a lease whose member does not know it yet.
func (r *rig) expire() { r.do("DEL", r.source(0).Lease("g")) }

// steal gives the lease to another member with no moment between in which it is free: who has it may look just then.
func (r *rig) steal(q *MQ, name string) {
	r.t.Helper()
	r.do("SET", r.source(0).Lease("g"), name, "PX", "60000")
	require.NotEmpty(r.t, r.take(q, name))
}

// next reads one batch of a hand-driven member.
func (r *rig) next(m *fence.Reader) fence.Fetched {
	r.t.Helper()
	got, err := m.Fetch(context.Background(), 10)
	require.NoError(r.t, err)
	return got
}

func of(e wire.Raw) fence.Held { return fence.Held{Id: e.Id, Deliveries: e.Deliveries} }

// handedOver is a delivery of A whose partition B has; B has not yet taken it over.
func handedOver(r *rig, q *MQ) (*fence.Reader, wire.Raw) {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	e := r.next(a).Entries[0]
	r.expire()
	r.member(q, "b")
	return a, e
}

// onStream are two consumers of a single stream, the second having claimed what the first has read.
func onStream(r *rig, q *MQ) (first, second *fence.Reader, e wire.Raw) {
	key := r.topic + "-single"
	src := core.Source{Layout: r.layout, Topic: key, Single: true}
	r.do("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")
	r.do("XADD", key, "*", "payload", "p")
	first = &fence.Reader{Mq: q.core, Src: src, Group: "g", Consumer: "first"}
	second = &fence.Reader{Mq: q.core, Src: src, Group: "g", Consumer: "second"}
	e = r.next(first).Entries[0]
	got, err := second.Claim(context.Background(), 10, 0, nil)
	require.NoError(r.t, err)
	require.Len(r.t, got.Entries, 1)
	return first, second, e
}

// later is a delivery that was put off until now.
func later(r *rig, q *MQ) *fence.Reader {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	got := r.next(a)
	parcels, err := a.Unpack(context.Background(), got.Entries)
	require.NoError(r.t, err)
	done, err := a.RetryLater(context.Background(), of(got.Entries[0]), parcels[0].Entry, 1, 0)
	require.NoError(r.t, err)
	require.True(r.t, done)
	return a
}
