package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
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
	info, err := i.do(ctx, i.client.B().XinfoStream().Key(i.cfg.StreamKey).Build()).AsMap()
	if isMissing(err) {
		return s, nil
	}
	if err != nil {
		return s, failure(ctx, "look at stream "+i.cfg.StreamKey, err)
	}
	s.Length = number(info["length"], 0)
	if deleted, ok := info["max-deleted-entry-id"]; ok && text(deleted) != "0-0" {
		s.Deleted = text(deleted)
	}
	first, err := i.entries(ctx, i.cfg.StreamKey, "-", 1)
	if err != nil {
		return s, err
	}
	if len(first) == 1 {
		s.First = first[0].ID
	}
	groups, err := i.do(ctx, i.client.B().XinfoGroups().Key(i.cfg.StreamKey).Build()).ToArray()
	if err != nil {
		return s, failure(ctx, "look at the groups of "+i.cfg.StreamKey, err)
	}
	for _, g := range groups {
		about, err := g.AsMap()
		if err != nil {
			return s, failure(ctx, "look at the groups of "+i.cfg.StreamKey, err)
		}
		if err := i.group(ctx, &s, text(about["name"]), text(about["last-delivered-id"])); err != nil {
			return s, err
		}
	}
	return s, nil
}

// group adds one group with its pending deliveries.
func (i *Inspector) group(ctx context.Context, s *ingestq.State, name, given string) error {
	s.Groups = append(s.Groups, ingestq.Group{Name: name, Given: given})
	at, _ := parseID(given)
	next, err := i.entries(ctx, i.cfg.StreamKey, at.next().String(), 1)
	if err != nil {
		return err
	}
	if len(next) == 1 {
		id, _ := parseID(next[0].ID)
		if s.Watermark.IsZero() || id.time().Before(s.Watermark) {
			s.Watermark = id.time()
		}
	}
	for start := "-"; ; {
		rows, err := i.do(ctx, i.client.B().Xpending().Key(i.cfg.StreamKey).Group(name).Start(start).End("+").Count(inspectPage).Build()).ToArray()
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
			id, _ := parseID(p.ID)
			start = id.next().String()
		}
		if len(rows) < inspectPage {
			return nil
		}
	}
}

// pending reads one pending delivery's entry. Neither Gone nor with a task: unreadable, or acknowledged and trimmed meanwhile.
func (i *Inspector) pending(ctx context.Context, group string, row rueidis.RedisMessage) (ingestq.Unacked, error) {
	columns, err := row.ToArray()
	if err != nil || len(columns) != 4 {
		return ingestq.Unacked{}, fmt.Errorf("%w to XPENDING: %d columns", errAnswer, len(columns))
	}
	p := ingestq.Unacked{Group: group, ID: text(columns[0]), Idle: time.Duration(number(columns[2], 0)) * time.Millisecond}
	found, err := i.do(ctx, i.client.B().Xrange().Key(i.cfg.StreamKey).Start(p.ID).End(p.ID).Build()).AsXRange()
	if err != nil {
		return p, failure(ctx, "look at entry "+p.ID, err)
	}
	if len(found) == 1 {
		p.TaskID = decode(i.codec, found[0]).Envelope.GetTaskId()
		return p, nil
	}
	still, err := i.do(ctx, i.client.B().Xpending().Key(i.cfg.StreamKey).Group(group).Start(p.ID).End(p.ID).Count(1).Build()).ToArray()
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
			id, _ := parseID(e.ID)
			start = id.next().String()
		}
		if len(page) < inspectPage {
			return nil
		}
	}
}

// entries reads a page of a stream.
func (i *Inspector) entries(ctx context.Context, key, start string, n int64) ([]rueidis.XRangeEntry, error) {
	page, err := i.do(ctx, i.client.B().Xrange().Key(key).Start(start).End("+").Count(n).Build()).AsXRange()
	return page, failure(ctx, "read stream "+key, err)
}

// do runs one command within its time.
func (i *Inspector) do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return i.client.Do(call, command)
}
