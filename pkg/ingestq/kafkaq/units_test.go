package kafkaq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	at, ok := parseID("k:12:3456")
	require.True(t, ok)
	require.Equal(t, place{12, 3456}, at)
	require.LessOrEqual(t, len(place{9999, 1<<63 - 1}.id()), 31)
	for _, bad := range []string{"", "k:", "k:1", "k:1:", "k::1", "k:-1:2", "k:1:-2", "k:01:2", "k:1:2:3", "1-1", "1700000000000-0", "k:99999999999:1", "K:1:2", "k:+1:2"} {
		_, ok := parseID(bad)
		require.False(t, ok, bad)
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("k:1:2")
	f.Add("1-1")
	f.Fuzz(func(t *testing.T, s string) {
		if at, ok := parseID(s); ok && at.id() != s {
			t.Fatalf("%q is read as %q", s, at.id())
		}
	})
}

// The offset that may be committed is that of the first unfinished record, in whatever order records end.
func TestWindowCommitsTheFinishedPrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var w window
		done := map[int64]bool{}
		var all []int64
		committed := int64(-1)
		next := int64(rapid.IntRange(0, 5).Draw(t, "start"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(all) == 0 || rapid.Bool().Draw(t, "add") {
				next += int64(rapid.SampledFrom([]int{0, 0, 0, 1, 7}).Draw(t, "gap"))
				w.add(next)
				all = append(all, next)
				next++
				continue
			}
			o := rapid.SampledFrom(all).Draw(t, "finish")
			if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
				o += 1000
			} else {
				done[o] = true
			}
			commit, moved := w.finish(o)
			want := next
			unfinished := 0
			for i := len(all) - 1; i >= 0; i-- {
				if !done[all[i]] {
					want = all[i]
					unfinished++
				}
			}
			if unfinished == 0 {
				want = all[len(all)-1] + 1
			}
			if moved {
				require.Equal(t, want, commit)
				require.Greater(t, commit, committed)
				committed = commit
			}
			require.Equal(t, unfinished, w.unfinished())
			require.False(t, w.holds(o))
		}
	})
}

func TestTheBrokersClockIsKnownToBeAheadForAWhile(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var a ahead
	a.see(now.Add(-time.Hour), now)
	require.Zero(t, a.by(now), "an old record says nothing")
	a.see(now.Add(3*time.Second), now)
	a.see(now.Add(time.Second), now)
	require.Equal(t, 3*time.Second, a.by(now))
	require.Zero(t, a.by(now.Add(aheadFor+time.Second)))
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	require.NoError(t, NewDefaultConfig("127.0.0.1:9092, localhost:9093").Validate())
	require.Equal(t, []string{"a:1", "b:2"}, NewDefaultConfig(" a:1, ,b:2,").Brokers)
	for name, change := range map[string]func(*Config){
		"KAFKA_BOOTSTRAP_SERVERS": func(c *Config) { c.Brokers = nil },
		`"localhost"`:             func(c *Config) { c.Brokers = []string{"localhost"} },
		"INGEST_KAFKA_TOPIC":      func(c *Config) { c.Topic = "a b" },
		"1 to 245":                func(c *Config) { c.Topic = repeat("t", 246) },
		"INGEST_KAFKA_GROUP":      func(c *Config) { c.Group = "" },
		"KAFKA_SASL_MECHANISM: \"GSSAPI\"": func(c *Config) {
			c.Mechanism, c.User, c.Password = "GSSAPI", "u", "p"
		},
		"KAFKA_SASL_USER":                           func(c *Config) { c.Mechanism, c.Password = MechanismPlain, "p" },
		"KAFKA_SASL_PASSWORD: must be set with":     func(c *Config) { c.Mechanism, c.User = MechanismPlain, "u" },
		"KAFKA_SASL_MECHANISM: must be set with KA": func(c *Config) { c.User = "u" },
	} {
		c := NewDefaultConfig("a:1")
		change(&c)
		require.ErrorContains(t, c.Validate(), name)
		_, err := NewClient(c)
		require.Error(t, err)
	}
}
