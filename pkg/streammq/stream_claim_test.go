package streammq

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// claimingLua is XREADGROUP … CLAIM for a server without it, as Redis 8.4 documents it
// (https://redis.io/docs/latest/commands/xreadgroup/#the-claim-option): first what is pending and idle for that long,
// longest first, each with its idle time and its earlier deliveries, null in place of data that is gone; then new entries.
const claimingLua = `
local real = redis
local redis = setmetatable({}, {__index = real})
redis.call = function(...)
  local args = {...}
  if args[7] ~= 'CLAIM' then return real.call(...) end
  local group, consumer, count, idle, stream = args[3], args[4], args[6], args[8], args[10]
  local got, pending = {}, real.call('XPENDING', stream, group, 'IDLE', idle, '-', '+', count)
  table.sort(pending, function(a, b) return a[3] > b[3] end)
  for _, p in ipairs(pending) do
    local e = real.call('XCLAIM', stream, group, consumer, 0, p[1])[1]
    got[#got + 1] = {p[1], e and e[2], p[3], p[4]}
  end
  local new = #got < count and real.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count - #got, 'STREAMS', stream, '>')
  for _, e in ipairs(new and new[1][2] or {}) do got[#got + 1] = e end
  return #got > 0 and {{stream, got}}
end
`

// claimingClient is a client of a server that knows CLAIM, as far as its own commands go.
type claimingClient struct{ rueidis.Client }

func (c claimingClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	args := cmd.Commands()
	if i := slices.Index(args, "CLAIM"); args[0] == "XREADGROUP" && i > 0 {
		args = slices.Delete(slices.Clone(args), i, i+2)
		at := slices.Index(args, "STREAMS") + 1
		cmd = c.B().Arbitrary(args[:at]...).Keys(args[at]).Args(args[at+1:]...).Build()
	}
	return c.Client.Do(ctx, cmd)
}

// claiming is an MQ on a server of Redis 8.4, as far as reading goes.
func (r *rig) claiming() *MQ {
	q := r.mq(nil)
	q.core.Client = claimingClient{q.core.Client}
	q.core.Scripts = stream.Load(func(name string) string {
		if name == "fence" {
			return claimingLua + stream.ReadLua(name)
		}
		return stream.ReadLua(name)
	})
	return q
}

// others is a single stream with entries that a foreign consumer has read, and a reader that claims what is idle.
func (r *rig) others(q *MQ, payloads ...string) (foreign, claimer *fence.Reader, theirs []wire.Raw) {
	r.t.Helper()
	r.addSingle(payloads...)
	src := core.Source{Layout: r.layout, Topic: r.topic + "-tasks", Single: true}
	r.do("XGROUP", "CREATE", src.Stream(), "workers", "0")
	foreign = &fence.Reader{Mq: q.core, Src: src, Group: "workers", Consumer: "foreign"}
	claimer = &fence.Reader{Mq: q.core, Src: src, Group: "workers", Consumer: "live", Claims: "0"}
	return foreign, claimer, r.next(foreign).Entries
}

// A read that claims brings what others had, counted as another delivery and fenced as such, before what is new.
func TestReadThatClaims(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		foreign, claimer, theirs := r.others(r.claiming(), "0", "1")
		r.addSingle("2", "3")
		got, err := claimer.Fetch(r.t.Context(), 3)
		require.NoError(r.t, err)
		require.Len(r.t, got.Entries, 3)
		require.ElementsMatch(r.t, []string{theirs[0].Id, theirs[1].Id}, []string{got.Entries[0].Id, got.Entries[1].Id})
		for i, deliveries := range []int64{2, 2, 1} {
			require.Equal(r.t, deliveries, got.Entries[i].Deliveries)
			require.Len(r.t, got.Entries[i].Fields, 2)
		}
		n, err := foreign.Ack(r.t.Context(), []fence.Held{of(theirs[0])})
		require.NoError(r.t, err)
		require.Zero(r.t, n, "it has lost them")
		n, err = claimer.Ack(r.t.Context(), []fence.Held{of(got.Entries[0]), of(got.Entries[1]), of(got.Entries[2])})
		require.NoError(r.t, err)
		require.Equal(r.t, 3, n)
	})
}

// What waits for its time, and what lost its data, is nothing to claim.
func TestReadThatClaimsLeavesWhatWaits(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		foreign, claimer, theirs := r.others(r.claiming(), "0", "1")
		done, err := foreign.RetryInPlace(r.t.Context(), of(theirs[0]), 1, time.Hour)
		require.NoError(r.t, err)
		require.True(r.t, done)
		r.do("XDEL", claimer.Src.Stream(), theirs[1].Id)
		got, err := claimer.Fetch(r.t.Context(), 10)
		require.NoError(r.t, err)
		require.Empty(r.t, got.Entries)
		require.Equal(r.t, 1, got.Lost)
		require.Equal(r.t, 1, r.pendingOf(claimer.Src.Stream(), "workers"))
		require.Equal(r.t, 1, r.number("ZCARD", claimer.Src.Due("workers")))
		again, err := claimer.Fetch(r.t.Context(), 10)
		require.NoError(r.t, err)
		require.Positive(r.t, again.Wait)
	})
}

// A subscriber that does both takes what others have left, with a server that claims and with one that does not.
func TestSubscriberClaimsWithOrWithoutTheServersHelp(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		for name, mq := range map[string]func(*rig) *MQ{
			"claiming": (*rig).claiming,
			"plain":    func(r *rig) *MQ { return r.mq(nil) },
		} {
			one, seen := r.another(), &log{}
			q := mq(one)
			one.others(q, "0", "1")
			one.single(q, "live", RoleBoth, seen.handler(succeed), nil)
			one.addSingle("2")
			eventually(r.t, func() bool { // it may rob its own reader
				got := seen.payloads()
				slices.Sort(got)
				return len(slices.Compact(got)) == 3 && one.pendingOf(one.topic+"-tasks", "workers") == 0
			}, "%s: all", name)
		}
	})
}

// The probe asks the server itself, and changes nothing.
func TestServerIsAskedWhetherItClaims(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		for able, q := range map[bool]*MQ{true: r.claiming(), false: r.mq(nil)} {
			one := r.another()
			one.layout = r.layout
			foreign, _, theirs := one.others(q, "0")
			one.addSingle("1")
			got, err := foreign.CanClaim(r.t.Context())
			require.NoError(r.t, err)
			require.Equal(r.t, able, got)
			n, err := foreign.Ack(r.t.Context(), []fence.Held{of(theirs[0])})
			require.NoError(r.t, err)
			require.Equal(r.t, 1, n, "its delivery is the same")
			require.Len(r.t, r.next(foreign).Entries, 1, "nothing was read")
		}
	})
}
