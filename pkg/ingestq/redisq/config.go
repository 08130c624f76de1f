package redisq

import (
	"errors"
	"fmt"
	"time"

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
	refuse(c.StreamKey == "", "INGEST_STREAM_KEY: must not be empty")
	const noTag = "%s: %q has braces that are no hash tag of a Redis Cluster; leave them out, or write {part}:rest"
	refuse(cluster && !taggable(c.StreamKey), noTag, "INGEST_STREAM_KEY", c.StreamKey)
	refuse(cluster && !taggable(c.DLQKey), noTag, "INGEST_REDIS_DLQ_STREAM_KEY", c.DLQKey)
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
