package redisq

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// inspectPage is how many entries one command of an Inspector reads.
const inspectPage = 1000

// Inspector implements ingestq.Inspector: it reads streams and groups and never heals, reads or acknowledges.
type Inspector struct {
	client rueidis.Client
	cfg    Config
	codec  Codec
}

var _ ingestq.Inspector = (*Inspector)(nil)

// NewInspector makes one on a client that the caller closes; cfg must be valid.
func NewInspector(client rueidis.Client, cfg Config) *Inspector {
	return NewPartInspector(client, cfg, plain{})
}

// NewPartInspector makes one for a stream whose entries another codec reads.
func NewPartInspector(client rueidis.Client, cfg Config, codec Codec) *Inspector {
	return &Inspector{client, cfg, codec}
}

// Look implements ingestq.Inspector. What was removed is read before what was given: so an entry that is removed and given
// meanwhile never looks as if it had been removed first.
func (i *Inspector) Look(ctx context.Context) (ingestq.State, error) {
	var s ingestq.State
	info, err := do(ctx, i.client, i.client.B().XinfoStream().Key(i.cfg.StreamKey).Build()).AsMap()
	if stream.IsMissing(err) {
		return s, nil
	}
	if err != nil {
		return s, failure(ctx, "look at stream "+i.cfg.StreamKey, err)
	}
	s.Length = stream.Number(info["length"], 0)
	if deleted, ok := info["max-deleted-entry-id"]; ok && stream.Text(deleted) != "0-0" {
		s.Deleted = stream.Text(deleted)
	}
	first, err := i.entries(ctx, i.cfg.StreamKey, "-", 1)
	if err != nil {
		return s, err
	}
	if len(first) == 1 {
		s.First = first[0].ID
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	groups, err := stream.Groups(call, i.client, i.cfg.StreamKey)
	if err != nil {
		return s, failure(ctx, "look at the groups of "+i.cfg.StreamKey, err)
	}
	for _, g := range groups {
		if err := i.group(ctx, &s, g.Name, g.LastDelivered); err != nil {
			return s, err
		}
	}
	return s, nil
}

// group adds one group with its pending deliveries.
func (i *Inspector) group(ctx context.Context, s *ingestq.State, name, given string) error {
	s.Groups = append(s.Groups, ingestq.Group{Name: name, Given: given})
	at, _ := stream.ParseID(given) // the emulator's "0" of a group that was given nothing is no id
	next, err := i.entries(ctx, i.cfg.StreamKey, at.Next().String(), 1)
	if err != nil {
		return err
	}
	if len(next) == 1 {
		id, _ := stream.ParseID(next[0].ID)
		if s.Watermark.IsZero() || id.Time().Before(s.Watermark) {
			s.Watermark = id.Time()
		}
	}
	for start := "-"; ; {
		rows, err := i.pendingPage(ctx, name, start)
		if err != nil {
			return failure(ctx, "look at what group "+name+" has pending", err)
		}
		for _, row := range rows {
			p, err := i.pending(ctx, name, row)
			if err != nil {
				return err
			}
			if p.Gone || p.TaskID != "" {
				s.Pending = append(s.Pending, p)
			}
			start = stream.Following(p.ID)
		}
		if len(rows) < inspectPage {
			return nil
		}
	}
}

func (i *Inspector) pendingPage(ctx context.Context, group, start string) ([]stream.Pending, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return stream.PendingEntries(call, i.client, i.cfg.StreamKey, group, 0, start, inspectPage)
}

// pending reads one pending delivery's entry. Neither Gone nor with a task: unreadable, or acknowledged and trimmed meanwhile.
func (i *Inspector) pending(ctx context.Context, group string, row stream.Pending) (ingestq.Unacked, error) {
	p := ingestq.Unacked{Group: group, ID: row.ID, Idle: row.Idle}
	found, err := do(ctx, i.client, i.client.B().Xrange().Key(i.cfg.StreamKey).Start(p.ID).End(p.ID).Build()).AsXRange()
	if err != nil {
		return p, failure(ctx, "look at entry "+p.ID, err)
	}
	if len(found) == 1 {
		p.TaskID = decode(i.codec, found[0].ID, found[0].FieldValues).TaskID
		return p, nil
	}
	still, err := do(ctx, i.client, i.client.B().Xpending().Key(i.cfg.StreamKey).Group(group).Start(p.ID).End(p.ID).Count(1).Build()).ToArray()
	if err != nil {
		return p, failure(ctx, "look at entry "+p.ID+" again", err)
	}
	p.Gone = len(still) == 1
	return p, nil
}

// DeadLetters implements ingestq.Inspector; without a dead letter stream there are none.
func (i *Inspector) DeadLetters(ctx context.Context, f func(ingestq.WrittenDeadLetter) error) error {
	if i.cfg.DLQKey == "" {
		return nil
	}
	for start := "-"; ; {
		page, err := i.entries(ctx, i.cfg.DLQKey, start, inspectPage)
		if err != nil {
			return err
		}
		for _, e := range page {
			l := ingestq.WrittenDeadLetter{ID: e.ID, TaskID: e.FieldValues["taskId"]}
			if l.Fence, err = strconv.ParseInt(e.FieldValues["fence"], 10, 64); err != nil {
				l.TaskID = "" // not one of ours: raw bytes
			}
			if err := f(l); err != nil {
				return err
			}
			start = stream.Following(e.ID)
		}
		if len(page) < inspectPage {
			return nil
		}
	}
}

// entries reads a page of a stream.
func (i *Inspector) entries(ctx context.Context, key, start string, n int64) ([]rueidis.XRangeEntry, error) {
	page, err := do(ctx, i.client, i.client.B().Xrange().Key(key).Start(start).End("+").Count(n).Build()).AsXRange()
	return page, failure(ctx, "read stream "+key, err)
}

// Keeps returns what Redis keeps of the deliveries that it has taken: disk (everything), 1s (a power failure loses about
// the last second), os (a power failure loses what the kernel had not written yet), none (memory, at most snapshots, or less: it
// evicts streams when its memory is short), or unknown (the server does not say); of a cluster what can be said of all its nodes. No
// promise depends on it: deliveries are made again from the table. Errors: ingestq.ErrUnavailable.
func Keeps(ctx context.Context, client rueidis.Client, rawURL string) (string, error) {
	if redisclient.Embedded(rawURL) {
		return "none", nil
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes := map[string]rueidis.Client{"": client}
	if isCluster(client) {
		nodes = client.Nodes()
	}
	least := ""
	for _, node := range nodes {
		one, err := keepsOne(call, node)
		if err != nil {
			return "", failure(ctx, "read the configuration", err)
		}
		if least == "" || keepsRank(one) < keepsRank(least) {
			least = one
		}
	}
	return least, nil
}

// keepsRank orders what can be said of all nodes, beginning with the least.
func keepsRank(level string) int {
	return slices.Index([]string{"none", "unknown", "os", "1s", "disk"}, strings.Fields(level)[0])
}

// keepsOne asks one server.
func keepsOne(ctx context.Context, client rueidis.Client) (string, error) {
	policy, err := infoField(ctx, client, "memory", "maxmemory_policy")
	if _, refused := rueidis.IsRedisErr(err); err != nil && !refused {
		return "", err
	}
	if strings.HasPrefix(policy, "allkeys-") {
		return fmt.Sprintf("none (maxmemory-policy %s evicts streams: set noeviction)", policy), nil
	}
	config, err := client.Do(ctx, client.B().ConfigGet().Parameter("append*").Build()).AsStrMap()
	if _, refused := rueidis.IsRedisErr(err); refused {
		return "unknown", nil // managed servers hide their configuration
	}
	if err != nil {
		return "", err
	}
	return keeps(config["appendonly"], config["appendfsync"]), nil
}

// keeps reads the two settings of the append-only file.
func keeps(appendOnly, fsync string) string {
	switch {
	case appendOnly == "no":
		return "none"
	case fsync == "always":
		return "disk"
	case fsync == "everysec":
		return "1s"
	case fsync == "no":
		return "os"
	}
	return fmt.Sprintf("unknown (appendonly=%q appendfsync=%q)", appendOnly, fsync)
}
