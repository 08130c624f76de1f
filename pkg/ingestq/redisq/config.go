package redisq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/redisclient"
)

// Defaults of contract §7, and the bounds of what makes sense.
const (
	defaultStream         = "ingest:tasks"
	defaultGroup          = "ingest-workers"
	defaultDLQ            = "ingest:tasks:dlq"
	defaultHeartbeatTTL   = 30 * time.Second // three beats may be lost before a member counts as dead
	defaultZombieMinIdle  = 72 * time.Hour
	defaultZombieInterval = 10 * time.Minute
	minHeartbeatTTL       = time.Second
	minZombieInterval     = time.Second
	maxZombiePending      = 1000 // they are moved inside one script
)

// Config is what an operator sets.
type Config struct {
	// URL is REDIS_URL; see redisclient.New. It may hold a password: log redisclient.Redact(URL).
	URL string
	// StreamKey and Group name the stream and its consumer group.
	StreamKey string
	Group     string
	// MaxUnfinished is the number of entries, waiting and pending, from which on none is added; 0: no bound. It is soft: publishers do
	// not count each other's entries at once.
	MaxUnfinished int
	// DLQKey is the dead letter stream; empty: none.
	DLQKey string
	// HeartbeatTTL is how long a member counts as alive after its last sign of life; at least 1 s.
	HeartbeatTTL time.Duration
	// ZombieMaxPending is the most pending entries that a dead member may have to be removed; they are moved, never lost.
	ZombieMaxPending int
	// ZombieMinIdle is how long a dead member must have been idle to be removed; 0 is allowed.
	ZombieMinIdle time.Duration
	// ZombieInterval is the time between two looks for dead members; at least 1 s.
	ZombieInterval time.Duration
	// ZombieDryRun only logs which members would be removed.
	ZombieDryRun bool
}

// NewDefaultConfig is the configuration of contract §7 for the Redis at url.
func NewDefaultConfig(url string) Config {
	return Config{
		URL: url, StreamKey: defaultStream, Group: defaultGroup, DLQKey: defaultDLQ,
		HeartbeatTTL: defaultHeartbeatTTL, ZombieMinIdle: defaultZombieMinIdle, ZombieInterval: defaultZombieInterval,
	}
}

// Validate names every setting that is out of its range; a bad URL is told without its password.
func (c Config) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	cluster, err := redisclient.Check(c.URL)
	if err != nil {
		errs = append(errs, fmt.Errorf("REDIS_URL: %w", err))
	}
	errs = append(errs, checkKey("INGEST_STREAM_KEY", c.StreamKey, cluster))
	if c.DLQKey != "" {
		errs = append(errs, checkKey("INGEST_REDIS_DLQ_STREAM_KEY", c.DLQKey, cluster))
	}
	refuse(c.Group == "", "INGEST_STREAM_GROUP: must not be empty")
	refuse(c.DLQKey == c.StreamKey && c.DLQKey != "",
		"INGEST_REDIS_DLQ_STREAM_KEY: %q is INGEST_STREAM_KEY; they must differ", c.DLQKey)
	refuse(c.HeartbeatTTL < minHeartbeatTTL, "heartbeat TTL: %s, at least %s", c.HeartbeatTTL, minHeartbeatTTL)
	refuse(c.ZombieMaxPending < 0 || c.ZombieMaxPending > maxZombiePending,
		"ZOMBIE_MAX_PENDING: %d, must be 0 to %d", c.ZombieMaxPending, maxZombiePending)
	refuse(c.ZombieMinIdle < 0, "ZOMBIE_MIN_IDLE_MS: %d, must not be negative", c.ZombieMinIdle.Milliseconds())
	refuse(c.ZombieInterval < minZombieInterval,
		"ZOMBIE_INTERVAL_MS: %d, at least %d", c.ZombieInterval.Milliseconds(), minZombieInterval.Milliseconds())
	return errors.Join(errs...)
}

// CheckKey says what is wrong with the key of a further stream on the Redis of a URL; setting is where it comes from.
func CheckKey(url, setting, key string) error {
	cluster, _ := redisclient.Check(url)
	return checkKey(setting, key, cluster)
}

func checkKey(setting, key string, cluster bool) error {
	switch {
	case key == "":
		return fmt.Errorf("%s: must not be empty", setting)
	case cluster && !taggable(key):
		return fmt.Errorf("%s: %q has braces that are no hash tag of a Redis Cluster; leave them out, or write {part}:rest", setting, key)
	}
	return nil
}

// isCluster tells whether keys must carry hash tags. What reads a stream by a client of a cluster and what reads it as one
// Redis would not see each other's heartbeats; the two cannot be mixed, since one Redis refuses redis-cluster:// and a
// cluster redirects redis://.
func isCluster(client rueidis.Client) bool { return client.Mode() == rueidis.ClientModeCluster }

// writtenKey is a ZSET of the dead letters of undecodable deliveries that the dead letter stream was given, with their time in ms,
// on a cluster only: a repeat of the first of two steps writes nothing new. Old ones are removed as new ones come.
func writtenKey(dlq string) string { return tag(dlq) + ":written" }

// tag is what a key in the slot of another one begins with: that one's own hash tag is kept.
func tag(key string) string {
	if hasTag(key) {
		return key
	}
	return "{" + key + "}"
}

// hasTag tells whether a part in braces, and not the whole key, says the slot.
func hasTag(key string) bool {
	_, rest, open := strings.Cut(key, "{")
	inside, _, closed := strings.Cut(rest, "}")
	return open && closed && inside != ""
}

// taggable tells whether tag finds the slot: braces are a hash tag or there are none.
func taggable(key string) bool { return hasTag(key) || !strings.ContainsAny(key, "{}") }
