package drill

import (
	"context"
	"slices"
	"time"

	"github.com/millweir/millweir/scripts/lab/drill/fullload"
	"github.com/millweir/millweir/scripts/lab/drill/kafka"
	"github.com/millweir/millweir/scripts/lab/drill/mirror"
	"github.com/millweir/millweir/scripts/lab/drill/server"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/drill/work"
)

// drill is a scene on one transport.
type drill struct {
	name  string
	what  string        // what is broken, for -list
	limit time.Duration // a drill that takes longer, its load apart, has failed
	rules []string      // must have judged at least one event
	on    stage.Transport
	run   func(ctx context.Context, s *stage.Stage) (string, error) // returns what it saw, in a few words
}

// The transports that a scene is played on.
var (
	onRedis      = []stage.Transport{stage.Redis}
	onPartitions = []stage.Transport{stage.Partitions}
	onKafka      = []stage.Transport{stage.Kafka}
	onMirror     = []stage.Transport{stage.Mirror}
	onStreams    = []stage.Transport{stage.Redis, stage.Partitions}
)

// scenes are the rows of the matrix; a scene's drills are called after its transports, "main-kill9-worker".
var scenes = []struct {
	name  string
	on    []stage.Transport
	limit int      // minutes
	rules []string // besides those of every drill and of the transport
	run   func(ctx context.Context, s *stage.Stage) (string, error)
	what  string
}{
	{"reproduction", onStreams, 2, []string{"I9", "I18"}, work.Reproduction, "Chroma unreachable, two attempts, no backoff"},
	{"kill9-worker", onStreams, 3, append(loaded, "I6"), work.Kill9, "gateway, workers and reclaimer killed at random"},
	{"kill9-postgres", onStreams, 3, append(loaded, "I6"), onPostgres(work.Kill9), "the same on Postgres"},
	{"kill9-dev", onStreams, 3, []string{"I6", "I14", "I25"}, work.Kill9Dev, "the all-in-one killed at random"},
	{"kill9-each", onStreams, 3, append(loaded, "I6"), work.Kill9Each, "gateway, worker and reclaimer killed in turn, their absence lasting"},
	{"kill9-all", onStreams, 3, append(loaded, "I6"), work.Kill9All, "all services killed at once and started in random order"},
	{"stop-worker", onStreams, 3, append(loaded, "I6"), work.StopWorkers, "a worker paused beyond its leases, again and again"},
	{"stop-reclaimer", onStreams, 3, append(loaded, "I9", "I10"), work.StopReclaimer, "the reclaimer paused beyond its leases, again and again, with retries to run"},
	{"stop-api", onStreams, 3, nil, work.StopAPI, "the gateway paused beyond the slack of what it enqueued, again and again"},
	{"zombie", onStreams, 3, []string{"I6"}, work.Zombie, "a worker paused beyond its leases and woken after the takeover"},
	{"poison", onStreams, 3, []string{"I6", "I18"}, work.Poison, "a document that kills its worker beside 20 innocent ones"},
	{"bulk", onRedis, 4, []string{"I6", "I9", "I13", "I15", "I24", "I26"}, work.Bulk, "10,000 DEAD tasks put back by one operation, all workers killed half way"},
	{"sigterm", onStreams, 3, nil, work.Sigterm, "workers, gateway and all-in-one stopped in the middle of work"},
	{"commit-unknown", onStreams, 3, loaded, server.CommitUnknown, "the replies to COMMITs cut, before and after the commit, on MariaDB"},
	{"commit-unknown-postgres", onStreams, 3, loaded, onPostgres(server.CommitUnknown), "the same on Postgres"},
	{"slow", onStreams, 3, nil, server.SlowNet, "slow connections to database, Redis, Chroma and embedding service in turn"},
	{"halfopen", onStreams, 3, nil, server.HalfOpenNet, "connections to each that stay and say nothing"},
	{"reset", onStreams, 3, nil, server.ResetNet, "connections to each that break off before the reply"},
	{"redis-loss", onStreams, 3, []string{"I15", "I25", "L5", "L6"}, server.RedisLoss, "Redis killed, started empty, flushed, its groups destroyed, its streams deleted"},
	{"redis-flush", onStreams, 8, []string{"I15", "I25", "L5", "L6"}, server.RedisFlush, "FLUSHALL with 10,000 tasks queued"},
	{"redis-silent", onStreams, 3, nil, server.RedisSilent, "Redis paused: its connections stay open and say nothing"},
	{"redis-failover", onStreams, 3, nil, server.RedisFailover, "the primary of a Sentinel set killed, twice"},
	{"sse", onStreams, 4, append(loaded, "I9", "I10"), work.SSE, "1,000 clients of event streams coming and going, the gateway stopped and killed"},
	{"db-restart", onStreams, 3, []string{"I25", "L5"}, server.DatabaseRestart, "MariaDB killed, then away for 10 s"},
	{"chroma-faults", onStreams, 3, append(loaded, "I9", "I10"), server.ChromaFaults, "Chroma away for 20 s, 500, 429, replies cut, a wrong dimension"},
	{"embed-faults", onStreams, 3, append(loaded, "I9", "I10"), server.EmbedFaults, "embedding service: 429, an error with 200, a wrong count, NaN, no reply"},
	{"power-loss", onStreams, 3, nil, server.PowerLoss, "all services killed, and what was not flushed gone from the upload folder"},
	{"disk-full", onStreams, 3, nil, server.DiskFull, "the upload folder full"},
	{"memory", onStreams, 3, nil, work.MemoryLimit, "documents that eat memory beside innocent ones"},
	{"rebalance", onPartitions, 4, nil, work.PartitionsRebalance, "workers joining and leaving every 3 s while documents get version after version"},
	{"switch", onPartitions, 3, nil, work.PartitionsSwitch, "from one stream to partitions with tasks in flight, all killed"},
	{"defaults", onRedis, 20, append(loaded, "I6"), work.Defaults, "workers at work, gateway, reclaimer and Redis killed, on default settings"},
	{"full-load", onRedis, 8, []string{"I6", "I13", "I15", "I17", "I25", "L4", "L5"}, fullload.Run, "workers, reclaimer and Redis killed by turns while 1,000 tasks a second and more run"},
	{"calm", onMirror, 3, nil, mirror.Calm, "nothing: every copy goes with its task, of documents and of texts by Telegram"},
	{"kill9", onMirror, 3, append(loaded, "I6"), work.Kill9, "gateway, workers, reclaimer and mirrors killed at random"},
	{"rabbit-lost", onMirror, 4, nil, mirror.RabbitLost, "RabbitMQ purged, stopped, and started with nothing, twice"},
	{"confirm", onMirror, 4, nil, mirror.Confirm, "RabbitMQ paused: it confirms nothing"},
	{"node", onMirror, 5, nil, mirror.Node, "each of three nodes of RabbitMQ killed in turn"},
	{"quorum", onMirror, 5, nil, mirror.Quorum, "two of three nodes of RabbitMQ killed"},
	{"full", onMirror, 4, nil, mirror.Full, "the queue of copies full"},
	{"heads", onMirror, 4, nil, mirror.Heads, "50 suspended tasks at the head of the queue"},
	{"redis-flush", onMirror, 8, nil, mirror.RedisFlush, "FLUSHALL with 5,000 open and 5,000 ended tasks, workflows among them"},
	{"redis-away", onMirror, 4, nil, mirror.RedisAway, "Redis away for 30 s, a rehydrator running tasks out of their copies"},
	{"database-lost", onMirror, 4, nil, mirror.DatabaseLost, "the database dropped with its tasks unfinished, and all services killed"},
	{"reproduction", onKafka, 3, nil, kafka.Reproduction, "no broker: events die by the formula, and are revived when it comes"},
	{"broker", onKafka, 4, []string{"I25"}, kafka.Broker, "the broker killed for 20 s"},
	{"kill9", onKafka, 4, []string{"I6", "I25"}, work.Kill9, "relays, consumers, gateway and reclaimer killed at random"},
	{"two-relays", onKafka, 4, nil, kafka.TwoRelays, "250 events a second from concurrent transactions, two relays killed in turn"},
	{"rebalance", onKafka, 5, []string{"I25"}, kafka.Rebalance, "consumers joining and leaving every 5 s, tasks longer than a session"},
	{"loss", onKafka, 4, []string{"I25"}, kafka.Loss, "the broker started with nothing"},
	{"switch", onKafka, 4, nil, kafka.Switch, "from Redis to Kafka and back, all killed each time"},
	{"defaults", onKafka, 8, []string{"I6", "I25"}, work.Defaults, "consumers at work, relay, gateway, reclaimer and broker killed, on default settings"},
	{"full-load", onKafka, 8, []string{"I6", "I25"}, fullload.Run, "workers, reclaimer, relays and broker killed by turns while 1,000 tasks a second and more run"},
}

// onPostgres plays a scene with Postgres in MariaDB's place.
func onPostgres(run func(context.Context, *stage.Stage) (string, error)) func(context.Context, *stage.Stage) (string, error) {
	return func(ctx context.Context, s *stage.Stage) (string, error) {
		s.Postgres = true
		return run(ctx, s)
	}
}

// drills are the whole matrix, transport by transport.
func drills() []drill {
	var out []drill
	for _, t := range stage.All {
		for _, s := range scenes {
			if slices.ContainsFunc(s.on, func(o stage.Transport) bool { return o.Name == t.Name }) {
				out = append(out, drill{t.Name + "-" + s.name, s.what, time.Duration(s.limit) * time.Minute, append(rulesOf(t, s.name), s.rules...), t, s.run})
			}
		}
	}
	return out
}

// always are the rules that every drill must have judged.
var always = []string{"I1", "I2", "I3", "I4", "I5", "I7", "I8", "I11", "I12", "I23", "I36", "I37", "I38", "I40", "I41", "I42", "L1"}

// loaded are those that a drill with a load and an echo must have judged besides.
var loaded = []string{"I13", "I14", "I15", "I17", "I20", "I24", "I25", "I26", "I27", "I28", "I29", "I30", "I34", "I35", "I44", "L4", "L5"}

// elsewhere are those that crash points and the soak judge: no load of a drill has messages.
var elsewhere = []string{"I43"}

// onOutbox are those of a transport's events.
var onOutbox = []string{"I16", "L3"}

// rulesOf are the rules that every drill on a transport must have judged. The all-in-one has its Redis inside, where nobody can
// look; a switch from one transport to another shows little of either.
func rulesOf(t stage.Transport, scene string) []string {
	switch {
	case t.Kafka && scene == "switch":
		return slices.Concat(always, onOutbox)
	case scene == "kill9-dev":
		return slices.Clone(always)
	}
	return slices.Concat(always, t.Rules)
}
