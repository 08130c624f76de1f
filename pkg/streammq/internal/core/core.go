// Package core is the queue over one server: its keys in both layouts, topics and what is known of them, statuses and trims.
package core

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// minVersion of Redis: XPENDING with IDLE, exclusive ranges and XTRIM MINID came with 6.2.
const MinMajor, MinMinor = 6, 2

// Core is the queue over one Redis, Sentinel set or cluster. It is safe for concurrent use.
type Core struct {
	stream.Runner
	Cfg     model.Config
	Scripts stream.Scripts
	Topics  Topics
	Letters Cache[LetterPlace] // of topics, as they were found lately
	Parted  Cache[string]      // topic → last letter that was looked at
	made    time.Time
}

// New makes it. Its error wraps ErrConfig.
func New(client rueidis.Client, cfg model.Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	q := &Core{Runner: stream.Runner{Client: stream.Pinned(client)}, Cfg: cfg, Scripts: stream.Loaded(), made: cfg.Now()}
	q.Topics.q = q
	return q, nil
}

// ForLayout is this queue for topics of another layout. Error: ErrLayout.
func (q *Core) ForLayout(layout model.Layout) (*Core, error) {
	switch {
	case layout == q.Cfg.Layout:
		return q, nil
	case layout != model.LayoutCluster:
		return nil, fmt.Errorf("layout %q: %w: %q is set", layout, model.ErrLayout, q.Cfg.Layout)
	}
	cfg := q.Cfg
	cfg.Layout = layout
	return New(q.Client, cfg)
}

// Check asks the server whether this queue can be durable on it.
func (q *Core) Check(ctx context.Context) error {
	info := map[string]string{}
	for _, section := range []string{"server", "memory", "cluster"} {
		text, err := q.Client.Do(ctx, q.Client.B().Info().Section(section).Build()).ToString()
		if err != nil {
			return model.Failure(ctx, "ask the server what it is", err)
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[name] = value
			}
		}
	}
	return q.Judge(info)
}

func (q *Core) Judge(info map[string]string) error {
	if version := info["redis_version"]; OlderThan(version, MinMajor, MinMinor) {
		return fmt.Errorf("redis %s: %w: at least %d.%d", version, model.ErrServer, MinMajor, MinMinor)
	}
	// volatile-* drops leases only, which is a release; allkeys-* drops streams and epochs.
	if policy := info["maxmemory_policy"]; strings.HasPrefix(policy, "allkeys-") {
		return fmt.Errorf("maxmemory-policy %s: %w: noeviction is needed", policy, model.ErrEviction)
	}
	if info["cluster_enabled"] == "1" && q.Cfg.Layout != model.LayoutCluster {
		return fmt.Errorf("the server is a cluster: %w: set Layout to %s", model.ErrLayout, model.LayoutCluster)
	}
	return nil
}

// OlderThan compares the first two numbers of a version; what cannot be read is not called old.
func OlderThan(version string, major, minor int) bool {
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

func (q *Core) Source(topic string, partition int) Source {
	return Source{Layout: q.Cfg.Layout, Topic: topic, Part: partition}
}

// Elapsed is the time since this MQ was made in ms, from 1 on. Unlike the time of day it does not jump.
func (q *Core) Elapsed(now time.Time) int64 { return max(1, now.Sub(q.made).Milliseconds()) }

func (q *Core) Observe(e model.Event) { q.Cfg.Observer.Observe(e) }

// GroupsOf are the groups of one stream; a missing stream has none.
func (q *Core) GroupsOf(ctx context.Context, s Source) ([]stream.Group, error) {
	groups, err := stream.Groups(ctx, q.Client, s.Stream())
	if err != nil && !stream.IsMissing(err) {
		return nil, model.Failure(ctx, "list groups of "+s.Stream(), err)
	}
	return groups, nil
}

// Every runs do at once and then each interval until ctx ends.
func Every(ctx context.Context, running *sync.WaitGroup, interval time.Duration, do func(context.Context)) {
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

// Writing outlives the handler's ctx: the fence, not the caller's patience, decides whether a result still counts.
func Writing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), WriteTimeout)
}

const WriteTimeout = 5 * time.Second // of one settling script

// LetterPlace is where the dead letters of a topic go.
type LetterPlace struct {
	Own  bool
	Seen time.Time
}

// Cache is what a process knows of each topic. It is safe for concurrent use.
type Cache[T any] struct{ topics sync.Map }

// Get returns what is known; ok is false when nothing is.
func (c *Cache[T]) Get(topic string) (known T, ok bool) {
	if value, found := c.topics.Load(topic); found {
		known, ok = value.(T)
	}
	return known, ok
}

// Put notes what is known now.
func (c *Cache[T]) Put(topic string, known T) { c.topics.Store(topic, known) }

// Forget makes a topic unknown.
func (c *Cache[T]) Forget(topic string) { c.topics.Delete(topic) }

const bodyPortion = 100

// TrimTo trims what is consumed, with the payloads beside it.
func (q *Core) TrimTo(ctx context.Context, s Source, r model.Retention, dryRun bool) (total int, border string, err error) {
	total, border, err = q.TrimStream(ctx, s.Stream(), r, dryRun)
	if err != nil || dryRun {
		return total, border, err
	}
	if total > 0 {
		q.Observe(model.Event{Kind: model.EventTrimmed, Topic: s.Topic, Partition: s.Part, Count: total})
	}
	return total, border, q.RemoveBodies(ctx, s, border)
}

// TrimStream is TrimTo of a stream of any key, without what lies beside it.
func (q *Core) TrimStream(ctx context.Context, key string, r model.Retention, dryRun bool) (total int, border string, err error) {
	total, border, err = q.Trim(ctx, q.Scripts.Trim, key, r, dryRun)
	return total, border, model.Failure(ctx, "trim "+key, err)
}

// RemoveBodies removes payloads beside the stream whose entries all groups have finished: those of a millisecond before
// the border's. The payload goes before its note, so that a crash between leaves nothing behind.
// A retry or a dead letter needs none: it carries the payload itself.
func (q *Core) RemoveBodies(ctx context.Context, s Source, border string) error {
	if border == "" {
		return nil
	}
	below, _, _ := strings.Cut(border, "-")
	for {
		uuids, err := q.Client.Do(ctx, q.Client.B().Zrangebyscore().Key(s.Bodies()).Min("-inf").Max("("+below).
			Limit(0, bodyPortion).Build()).AsStrSlice()
		if err != nil || len(uuids) == 0 {
			return model.Failure(ctx, "list payloads beside "+s.Stream(), err)
		}
		keys := make([]string, len(uuids))
		for i, uuid := range uuids {
			keys[i] = s.Body(uuid)
		}
		results := q.Client.DoMulti(ctx, rueidis.Commands{
			q.Client.B().Unlink().Key(keys...).Build(),
			q.Client.B().Zrem().Key(s.Bodies()).Member(uuids...).Build(),
		}...)
		for _, r := range results { // in turn: no note goes before its payload
			if err := r.Error(); err != nil {
				return model.Failure(ctx, "remove payloads beside "+s.Stream(), err)
			}
		}
	}
}

// OneID is the id of the first entry that was read; "": there is none.
func OneID(r rueidis.RedisResult) string {
	entries, err := r.AsXRange()
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].ID
}

const (
	StatusTTL    = 72 * time.Hour
	StatusFormat = time.RFC3339Nano
)

// StatusKey is a STRING of JSON, see Status; TTL statusTTL from the last write. It lies in a slot of its own.
func StatusKey(uuid string) string { return "task:status:" + uuid }

// OwnerKey is a STRING, the user of the message's HeaderUser; TTL statusTTL from the last write of its status, in a slot of
// its own. The first message with a uuid has it.
func OwnerKey(uuid string) string { return "task:owner:" + uuid }

// OwnStatus is the status of a user's own message; see MQ.OwnStatus.
func (q *Core) OwnStatus(ctx context.Context, user, uuid string) (s model.Status, found bool, err error) {
	owner, err := q.Client.Do(ctx, q.Client.B().Get().Key(OwnerKey(uuid)).Build()).ToString()
	if rueidis.IsRedisNil(err) || err == nil && (user == "" || owner != user) {
		return model.Status{}, false, nil
	}
	if err != nil {
		return model.Status{}, false, model.Failure(ctx, "read the owner of "+uuid, err)
	}
	list, err := q.Statuses(ctx, uuid)
	s, found = list[uuid]
	return s, found, err
}

// Statuses are those of messages of topics with status, by uuid. One that is missing is unknown, or has expired.
// Errors: ErrMalformed, ErrUnavailable.
func (q *Core) Statuses(ctx context.Context, uuids ...string) (map[string]model.Status, error) {
	commands := make(rueidis.Commands, len(uuids))
	for i, uuid := range uuids {
		commands[i] = q.Client.B().Get().Key(StatusKey(uuid)).Build()
	}
	list := make(map[string]model.Status, len(uuids))
	if len(uuids) == 0 {
		return list, nil
	}
	for i, r := range q.Client.DoMulti(ctx, commands...) {
		text, err := r.AsBytes()
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return nil, model.Failure(ctx, "read status", err)
		}
		var s model.Status
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("status of %s: %w: %w", uuids[i], model.ErrMalformed, err)
		}
		list[uuids[i]] = s
	}
	return list, nil
}

// SetPending goes before the XADD in its pipeline. A crash between the two leaves a pending that expires.
func (q *Core) SetPending(uuid string, format wire.Format, now time.Time) rueidis.Completed {
	at := now.UTC().Format(StatusFormat)
	text := `{"status":"` + string(model.StatePending) + `","updatedAt":"` + at + `"`
	if format != wire.FormatOwn {
		text += `,"updated_at":"` + at + `"`
	}
	text += "}"
	return q.Client.B().Set().Key(StatusKey(uuid)).Value(text).Nx().ExSeconds(int64(StatusTTL / time.Second)).Build()
}

// SetOwner goes beside setPending, and beside the status of an entry that another publisher wrote.
func (q *Core) SetOwner(uuid, user string) rueidis.Completed {
	return q.Client.B().Set().Key(OwnerKey(uuid)).Value(user).Nx().ExSeconds(int64(StatusTTL / time.Second)).Build()
}

func (q *Core) HasStatus(s Source) bool {
	meta, ok := q.Topics.Get(s.Topic)
	return ok && meta.status && !s.Single
}
