package streammq

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

// A server that cannot be asked is told by every call: no call takes it for one that holds nothing.
func TestEveryCallTellsThatItCouldNotAsk(t *testing.T) {
	t.Parallel()
	r, server := newPrivateRig(t)
	ctx := t.Context()
	r.topicOf(r.mq(nil), 1)
	once, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: r.home.addrs, DisableCache: true, ForceSingleClient: true, DisableRetry: true})
	require.NoError(t, err)
	t.Cleanup(once.Close)
	q := r.mq(nil)
	q.core.Client = once // which does not ask again until the caller's ctx ends
	single, err := q.NewStreamProducer("tasks", true)
	require.NoError(t, err)
	require.NoError(t, server.Kill(ctx))
	a, letters, reset := q.Admin(r.topic), q.Letters(r.topic), Reset{To: PositionEnd(), Partition: -1}
	alone, named := q.StreamAdmin("tasks"), q.NamedLetters("dead")
	for name, call := range map[string]func() error{
		"check":         func() error { return q.Check(ctx) },
		"create":        func() error { _, err := q.CreateTopic(ctx, Topic{Name: r.topic, Partitions: 2}); return err },
		"partitions":    func() error { _, err := q.Partitions(ctx, r.topic); return err },
		"topic":         func() error { _, err := q.Topic(ctx, r.topic); return err },
		"topics":        func() error { _, err := q.Topics(ctx); return err },
		"publish":       func() error { _, err := q.NewProducer(nil).Publish(ctx, r.topic, Message{}); return err },
		"to a stream":   func() error { _, err := single.Publish(ctx, Message{}); return err },
		"statuses":      func() error { _, err := q.Statuses(ctx, "u"); return err },
		"own status":    func() error { _, _, err := q.OwnStatus(ctx, "me", "u"); return err },
		"stats":         func() error { _, err := a.Stats(ctx); return err },
		"groups":        func() error { _, err := a.Groups(ctx); return err },
		"group stats":   func() error { _, err := a.GroupStats(ctx, "g"); return err },
		"owners":        func() error { _, err := a.Owners(ctx, "g"); return err },
		"in flight":     func() error { _, err := a.InFlight(ctx, "g"); return err },
		"pending":       func() error { _, err := a.Pending(ctx, "g", PendingQuery{}); return err },
		"range":         func() error { _, err := a.Range(ctx, 0, "-", "+", 1); return err },
		"recent":        func() error { _, err := a.Recent(ctx, 1); return err },
		"trim":          func() error { _, err := a.Trim(ctx, Retention{MaxLen: 1}, false); return err },
		"reset":         func() error { _, err := a.ResetGroup(ctx, "g", reset); return err },
		"delete group":  func() error { return a.DeleteGroup(ctx, "g", Removal{}) },
		"delete":        func() error { return a.Delete(ctx, Removal{}) },
		"stream: stats": func() error { _, err := alone.Stats(ctx); return err },
		"stream: group": func() error { _, err := alone.Groups(ctx); return err },
		"stream: of it": func() error { _, err := alone.GroupStats(ctx, "g"); return err },
		"stream: held":  func() error { _, err := alone.InFlight(ctx, "g"); return err },
		"stream: pend":  func() error { _, err := alone.Pending(ctx, "g", PendingQuery{}); return err },
		"stream: range": func() error { _, err := alone.Range(ctx, 0, "-", "+", 1); return err },
		"stream: trim":  func() error { _, err := alone.Trim(ctx, Retention{MaxLen: 1}, false); return err },
		"stream: reset": func() error { _, err := alone.ResetGroup(ctx, "g", reset); return err },
		"stream: gone":  func() error { return alone.Delete(ctx, Removal{Force: true}) },
		"list":          func() error { _, err := letters.List(ctx, LetterQuery{Partition: -1}); return err },
		"get":           func() error { _, err := letters.Get(ctx, 0, "1-1"); return err },
		"replay":        func() error { _, err := letters.Replay(ctx, Letter{ID: "1-1"}); return err },
		"replay all":    func() error { _, err := letters.ReplayAll(ctx, LetterQuery{Partition: -1}, 0, false); return err },
		"drop":          func() error { _, err := letters.Delete(ctx, 0, "1-1"); return err },
		"clear":         func() error { return letters.Clear(ctx) },
		"trim letters":  func() error { _, err := letters.Trim(ctx, Retention{MaxLen: 1}); return err },
		"named: list":   func() error { _, err := named.List(ctx, LetterQuery{Partition: -1}); return err },
		"named: clear":  func() error { return named.Clear(ctx) },
	} {
		require.ErrorIs(t, call(), ErrUnavailable, name)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx, ended = ended, ctx
		require.ErrorIs(t, call(), context.Canceled, "%s: the caller's own end goes first", name)
		ctx = ended
	}
}

// A server on which nothing was ever made holds nothing, which is no error.
func TestServerWithoutATopic(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	topics, err := q.Topics(t.Context())
	require.NoError(t, err)
	require.Empty(t, topics)
	statuses, err := q.Statuses(t.Context(), "u")
	require.NoError(t, err)
	require.Empty(t, statuses)
	require.Empty(t, r.allKeys("*"), "a look makes nothing")
}

// Pending entries whose data somebody removed are counted as lost and leave the group.
func TestRemovedEntriesAreToldAsLost(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.topicOf(q, 1)
		receipts := r.publish(q, "k", "0", "k", "1", "k", "2")
		r.next(r.member(q, "dead"))
		r.do("XDEL", r.source(0).Stream(), receipts[1].ID)
		r.expire()
		r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 2 && r.pending(0, "g") == 0 }, "the others are run")
		require.Equal(r.t, []string{"0", "2"}, seen.payloads())
		r.told(EventLost, 1)
	})
}
