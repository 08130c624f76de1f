package streammq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// minVersion of Redis: XPENDING with IDLE, exclusive ranges and XTRIM MINID came with 6.2.
const minMajor, minMinor = 6, 2

// core is the queue over one Redis, Sentinel set or cluster. It is safe for concurrent use.
type core struct {
	stream.Runner
	cfg     Config
	scripts stream.Scripts
	topics  topicCache
	places  foundPlaces
	made    time.Time
}

// newCore is New. Its error wraps ErrConfig.
func newCore(client rueidis.Client, cfg Config) (*core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &core{
		Runner: stream.Runner{Client: client}, cfg: cfg, scripts: stream.Loaded(), made: cfg.Now(), topics: topicCache{known: map[string]topicMeta{}},
		places: foundPlaces{known: map[string]foundPlace{}, parted: map[string]string{}},
	}, nil
}

// ForLayout is this queue for topics of another layout. Error: ErrLayout.
func (q *core) ForLayout(layout Layout) (*core, error) {
	switch {
	case layout == q.cfg.Layout:
		return q, nil
	case layout != LayoutCluster:
		return nil, fmt.Errorf("layout %q: %w: %q is set", layout, ErrLayout, q.cfg.Layout)
	}
	cfg := q.cfg
	cfg.Layout = layout
	return newCore(q.Client, cfg)
}

// Check asks the server whether this queue can be durable on it.
func (q *core) Check(ctx context.Context) error {
	info := map[string]string{}
	for _, section := range []string{"server", "memory", "cluster"} {
		text, err := q.Client.Do(ctx, q.Client.B().Info().Section(section).Build()).ToString()
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

func (q *core) judge(info map[string]string) error {
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

func (q *core) source(topic string, partition int) source {
	return source{layout: q.cfg.Layout, topic: topic, part: partition}
}

// elapsed is the time since this MQ was made in ms, from 1 on. Unlike the time of day it does not jump.
func (q *core) elapsed(now time.Time) int64 { return max(1, now.Sub(q.made).Milliseconds()) }

func (q *core) observe(e Event) { q.cfg.Observer.Observe(e) }

// every runs do at once and then each interval until ctx ends.
func every(ctx context.Context, running *sync.WaitGroup, interval time.Duration, do func(context.Context)) {
	running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			do(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
}

// writing outlives the handler's ctx: the fence, not the caller's patience, decides whether a result still counts.
func writing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
}

const writeTimeout = 5 * time.Second // of one settling script

// foundPlaces is where the dead letters of topics go, as it was found lately.
type foundPlaces struct {
	mu     sync.Mutex
	known  map[string]foundPlace
	parted map[string]string // topic → last letter that was looked at
}

type foundPlace struct {
	own  bool
	seen time.Time
}
