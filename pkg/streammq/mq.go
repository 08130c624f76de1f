package streammq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// minVersion of Redis: XPENDING with IDLE, exclusive ranges and XTRIM MINID came with 6.2.
const minMajor, minMinor = 6, 2

// MQ is the queue over one Redis, Sentinel set or cluster. It is safe for concurrent use.
type MQ struct {
	client  rueidis.Client
	cfg     Config
	scripts scripts
	topics  topicCache
	places  letterPlaces
	made    time.Time
}

// New makes an MQ over a client, which the caller closes after all that uses it. It does not talk to the server; see Check.
// Its error wraps ErrConfig.
func New(client rueidis.Client, cfg Config) (*MQ, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &MQ{
		client: client, cfg: cfg, scripts: loadScripts(readLua), made: cfg.Now(), topics: topicCache{known: map[string]topicMeta{}},
		places: letterPlaces{known: map[string]letterPlace{}, parted: map[string]string{}},
	}, nil
}

// ForLayout is this queue for topics of another layout, over the same client: LayoutCluster's keys work on one Redis too,
// LayoutSingle's not on a cluster. Error: ErrLayout.
func (q *MQ) ForLayout(layout Layout) (*MQ, error) {
	switch {
	case layout == q.cfg.Layout:
		return q, nil
	case layout != LayoutCluster:
		return nil, fmt.Errorf("layout %q: %w: %q is set", layout, ErrLayout, q.cfg.Layout)
	}
	cfg := q.cfg
	cfg.Layout = layout
	return New(q.client, cfg)
}

// Check asks the server whether this queue can be durable on it; call it at start.
// Errors: ErrServer, ErrEviction, ErrLayout, ErrUnavailable.
func (q *MQ) Check(ctx context.Context) error {
	info := map[string]string{}
	for _, section := range []string{"server", "memory", "cluster"} {
		text, err := q.client.Do(ctx, q.client.B().Info().Section(section).Build()).ToString()
		if err != nil {
			return failure(ctx, "ask the server what it is", err)
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[name] = value
			}
		}
	}
	return q.judge(info)
}

func (q *MQ) judge(info map[string]string) error {
	if version := info["redis_version"]; olderThan(version, minMajor, minMinor) {
		return fmt.Errorf("redis %s: %w: at least %d.%d", version, ErrServer, minMajor, minMinor)
	}
	// volatile-* drops leases only, which is a release; allkeys-* drops streams and epochs.
	if policy := info["maxmemory_policy"]; strings.HasPrefix(policy, "allkeys-") {
		return fmt.Errorf("maxmemory-policy %s: %w: noeviction is needed", policy, ErrEviction)
	}
	if info["cluster_enabled"] == "1" && q.cfg.Layout != LayoutCluster {
		return fmt.Errorf("the server is a cluster: %w: set Layout to %s", ErrLayout, LayoutCluster)
	}
	return nil
}

// olderThan compares the first two numbers of a version; what cannot be read is not called old.
func olderThan(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	if errA != nil || errB != nil {
		return false
	}
	return a < major || a == major && b < minor
}

func (q *MQ) source(topic string, partition int) source {
	return source{layout: q.cfg.Layout, topic: topic, part: partition}
}

// elapsed is the time since this MQ was made in ms, from 1 on. Unlike the time of day it does not jump.
func (q *MQ) elapsed(now time.Time) int64 { return max(1, now.Sub(q.made).Milliseconds()) }

func (q *MQ) observe(e Event) { q.cfg.Observer.Observe(e) }
