package streammq

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/retry"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// A dead letter is shown half rather than not at all: nothing in its fields may stop a list of dead letters.
func FuzzDecodeLetter(f *testing.F) {
	f.Add("orders", "3", "1-2", "5", `{"a":"b"}`, "raw:payload", "x")
	f.Add("", "-1", "", "99999999999999999999", "{", "raw:", "\xff")
	f.Add("orders", "0", "1-1", "1", "", "failedAt", "yesterday")
	f.Fuzz(func(t *testing.T, topic, partition, original, attempts, headers, name, value string) {
		fields := map[string]string{
			wire.FieldOriginalTopic: topic, wire.FieldPartition: partition, wire.FieldOriginalID: original, wire.FieldRetryCount: attempts, wire.FieldHeaders: headers,
		}
		fields[name] = value
		letter := wire.DecodeDeadLetter("1-1", fields)
		require.Equal(t, "1-1", letter.ID)
		require.GreaterOrEqual(t, letter.Partition, 0)
		require.GreaterOrEqual(t, letter.Attempts, 0)
		for raw, text := range letter.Raw {
			require.Equal(t, fields[wire.RawPrefix+raw], text)
		}
	})
}

// A retry item goes to a partition that its own text names, or the first if it names none, or is put aside.
func FuzzRetryItem(f *testing.F) {
	f.Add("payload", "x", "partitionId", "2", "retryCount", "1")
	f.Add("payload", "x", "partitionId", "02", "headers", "[]")
	f.Add("payloadRef", "u", "partitionId", "1024", "", "")
	f.Add("payload", "", "partitionId", "", "dueAt", "x")
	f.Fuzz(func(t *testing.T, a, b, c, d, g, h string) {
		fields := map[string]string{a: b, c: d, g: h}
		before := maps.Clone(fields)
		q := &MQ{}
		to, ok := retry.Target(q.core, core.Source{Layout: LayoutSingle, Topic: "t"}, "g:0:1-1", fields)
		require.Equal(t, before, fields)
		if ok {
			named, _ := wire.DecodeCount(fields[wire.FieldPartition]) // none, or no number: the first one
			require.Equal(t, named, to.Part)
			require.Less(t, to.Part, MaxPartitions)
		}
		home := core.Source{Layout: LayoutCluster, Topic: "t", Part: 2}
		if to, ok = retry.Target(q.core, home, "g:0:1-1", fields); ok {
			require.Equal(t, home, to, "another partition is in another slot")
		}
	})
}

func FuzzStatus(f *testing.F) {
	f.Add("completed", "*errors.errorString", "boom", int64(1))
	f.Add("", "\xff", "\"\\\n", int64(-1))
	f.Fuzz(func(t *testing.T, state, kind, text string, ms int64) {
		want := Status{State: State(state), UpdatedAt: time.UnixMilli(ms % 1e14).UTC(), Error: &StatusError{Type: kind, Message: text}}
		b, err := json.Marshal(want)
		if err != nil {
			return // a year that JSON does not know
		}
		var got Status
		require.NoError(t, json.Unmarshal(b, &got))
		require.True(t, want.UpdatedAt.Equal(got.UpdatedAt))
	})
}

// What a server says of itself is judged without a panic, and what cannot be read is not called old.
func FuzzServerInfo(f *testing.F) {
	f.Add("6.2.0", "noeviction", "0")
	f.Add("6.0.16", "allkeys-lru", "1")
	f.Add("7", "", "x")
	f.Add("-1.-1.-1", "volatile-ttl", "")
	q, err := New(nil, NewDefaultConfig())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, version, policy, cluster string) {
		err := q.core.Judge(map[string]string{"redis_version": version, "maxmemory_policy": policy, "cluster_enabled": cluster})
		if err != nil && !core.OlderThan(version, core.MinMajor, core.MinMinor) {
			require.NotErrorIs(t, err, ErrServer)
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{"orders", "a b", "a:b", "{a}", "", "ä", "a\x00"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if model.CheckName(name, ErrTopicName) == nil {
			require.Regexp(t, `^[A-Za-z0-9._-]{1,200}$`, name)
		}
		if model.CheckStreamKey(name) == nil {
			require.NotContains(t, name, "{")
			require.LessOrEqual(t, len(name), model.MaxStreamKey)
		}
	})
}
