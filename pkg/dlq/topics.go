package dlq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq"
)

// ReasonReplayed says that a topic's dead letter was replayed before; it stays until it is dropped.
const ReasonReplayed Reason = "REPLAYED"

// Topic is the service for the dead letters of one of streammq's topics, or of a single stream. A replay is one script there: the
// message goes back to its partition and the dead letter is marked, so nothing here can lie between the two.
type Topic struct {
	mq          *streammq.MQ
	deadLetters *streammq.Letters
	name        string
	now         func() time.Time
	wait        func(ctx context.Context, d time.Duration) error
}

// NewTopic makes one; single says that name is a stream's key.
func NewTopic(mq *streammq.MQ, name string, single bool) *Topic {
	t := &Topic{mq: mq, deadLetters: mq.Letters(name), name: name, now: time.Now, wait: wait}
	if single {
		t.deadLetters = mq.StreamLetters(name)
	}
	return t
}

// TopicQuery chooses dead letters of a topic; zero fields do not limit.
type TopicQuery struct {
	Group        string
	Partition    int // -1: all
	Key          string
	Text         string // in the error, whatever the case
	FailedAfter  time.Time
	FailedBefore time.Time
	Unreplayed   bool
}

// wants reports whether a dead letter is chosen.
func (q TopicQuery) wants(l *streammq.Letter) bool {
	return (q.Group == "" || l.Group == q.Group) &&
		(q.Partition < 0 || l.Partition == q.Partition) &&
		(q.Key == "" || l.Key == q.Key) &&
		(q.Text == "" || strings.Contains(strings.ToLower(l.Error), strings.ToLower(q.Text))) &&
		(q.FailedAfter.IsZero() || l.FailedAt.After(q.FailedAfter)) &&
		(q.FailedBefore.IsZero() || l.FailedAt.Before(q.FailedBefore)) &&
		(!q.Unreplayed || l.Replayed == "")
}

// List returns at most limit dead letters after an id ("": from the oldest on), and the id to go on from: "" at the end. On a cluster
// they come partition by partition, and an id is "partition:entry". It looks at a few thousand dead letters at most.
// Errors: ErrBadCursor, streammq.ErrUnknownTopic, streammq.ErrUnavailable.
func (t *Topic) List(ctx context.Context, q TopicQuery, after string, limit int) (list []streammq.Letter, next string, err error) {
	list, next, err = t.scan(ctx, q, after, limit)
	for i := range list {
		list[i].ID = t.placeOf(list[i]).String()
	}
	return list, next, err
}

// scan is List, with the dead letters as they are in their streams.
func (t *Topic) scan(ctx context.Context, q TopicQuery, after string, limit int) (list []streammq.Letter, next string, err error) {
	at, end, err := t.bounds(ctx, q, after)
	if err != nil {
		return nil, "", err
	}
	for looked := 0; looked < maxLooked && at.stream < end; {
		page, err := t.deadLetters.List(ctx, streammq.LetterQuery{Partition: at.partition(), After: at.entry, Limit: scanPage})
		if err != nil {
			return nil, "", err
		}
		for i := range page {
			at.entry = page[i].ID
			if !q.wants(&page[i]) {
				continue
			}
			if list = append(list, page[i]); len(list) == limit {
				if i+1 == len(page) && len(page) < scanPage {
					at = at.onward()
				}
				return list, at.before(end), nil
			}
		}
		if looked += len(page); len(page) < scanPage {
			at = at.onward()
		}
	}
	return list, at.before(end), nil
}

// bounds are the place to begin at, and the stream to end before.
func (t *Topic) bounds(ctx context.Context, q TopicQuery, after string) (at place, end int, err error) {
	at.apart, end = t.deadLetters.Apart(), 1
	if at.apart {
		if end, err = t.mq.Partitions(ctx, t.name); err != nil {
			return at, 0, err
		}
		if q.Partition >= 0 {
			at.stream, end = q.Partition, min(end, q.Partition+1)
		}
	}
	if after != "" {
		if at, err = parsePlace(after, at.apart); err != nil {
			err = fmt.Errorf("%w: %w", ErrBadCursor, err)
		}
	}
	return at, end, err
}

// find is the place of a dead letter.
func (t *Topic) find(id string) (place, error) {
	at, err := parsePlace(id, t.deadLetters.Apart())
	if err == nil && at.entry == "" {
		err = fmt.Errorf("dead letter %s of %s: %w", id, t.name, ErrNotFound)
	}
	return at, err
}

// Get returns one dead letter. Errors: ErrNotFound, streammq.ErrNotFound, streammq.ErrUnavailable.
func (t *Topic) Get(ctx context.Context, id string) (streammq.Letter, error) {
	l, err := t.get(ctx, id)
	if err == nil {
		l.ID = id
	}
	return l, err
}

// get is Get, with the dead letter as it is in its stream.
func (t *Topic) get(ctx context.Context, id string) (streammq.Letter, error) {
	at, err := t.find(id)
	if err != nil {
		return streammq.Letter{}, err
	}
	return t.deadLetters.Get(ctx, at.stream, at.entry)
}

// Replay adds the dead letter's message again, once, and returns the dead letter afterwards.
// Errors: ErrNotFound, streammq.ErrNotFound, streammq.ErrReplayed, streammq.ErrMalformed, streammq.ErrUnavailable.
func (t *Topic) Replay(ctx context.Context, id string) (streammq.Letter, error) {
	l, err := t.get(ctx, id)
	if err != nil {
		return l, err
	}
	l.Replayed, err = t.deadLetters.Replay(ctx, l)
	l.ID = id
	return l, err
}

// ReplayAll replays the dead letters that q chooses, from the oldest to the newest; b.After is an id. Errors: as List, when nothing
// was done; a failure later on is told in the Result.
func (t *Topic) ReplayAll(ctx context.Context, q TopicQuery, b Bulk) (Result, error) {
	r := Result{Skipped: map[Reason]int{}}
	q.Unreplayed = true
	after := b.from()
	deadLetters, next, err := t.scan(ctx, q, after, b.Limit)
	if err != nil {
		return r, err
	}
	pace := pacer{now: t.now, wait: t.wait, began: t.now(), perSecond: b.PerSecond}
	for i := range deadLetters {
		if !b.DryRun {
			over, err := pace.next(ctx, i)
			if err != nil {
				return r, err
			}
			if over {
				next = after
				break
			}
		}
		if err := t.replayOne(ctx, deadLetters[i], b.DryRun, &r); err != nil {
			if i == 0 {
				return r, err
			}
			r.Failed, r.Err, next = 1, err, after
			break
		}
		after = t.placeOf(deadLetters[i]).String()
	}
	if next != "" {
		r.Next = &Cursor{ID: next}
	}
	return r, nil
}

// from is the id of the topic's dead letter to go on after; empty: the start.
func (b Bulk) from() string {
	if b.After == nil {
		return ""
	}
	return b.After.ID
}

// replayOne replays a dead letter, or counts it, or says why it cannot be.
func (t *Topic) replayOne(ctx context.Context, l streammq.Letter, dryRun bool, r *Result) error {
	var err error
	switch {
	case l.Raw != nil:
		err = streammq.ErrMalformed
	case !dryRun:
		_, err = t.deadLetters.Replay(ctx, l)
	}
	switch {
	case errors.Is(err, streammq.ErrReplayed):
		r.count(ReasonReplayed)
	case errors.Is(err, streammq.ErrMalformed):
		r.count(ReasonUnreadable)
	case errors.Is(err, streammq.ErrNotFound): // somebody dropped it
		r.count(ReasonGone)
	case err != nil:
		return err
	default:
		r.count("")
	}
	return nil
}

// Drop removes one dead letter for good. Errors: ErrNotFound, streammq.ErrNotFound, streammq.ErrUnavailable.
func (t *Topic) Drop(ctx context.Context, id string) error {
	at, err := t.find(id)
	if err != nil {
		return err
	}
	n, err := t.deadLetters.Delete(ctx, at.stream, at.entry)
	if err == nil && n == 0 {
		err = fmt.Errorf("dead letter %s of %s: %w", id, t.name, streammq.ErrNotFound)
	}
	return err
}

// DropAll removes the dead letters that q chooses, at most b.Limit in one call. Errors: as List.
func (t *Topic) DropAll(ctx context.Context, q TopicQuery, b Bulk) (Result, error) {
	r := Result{Skipped: map[Reason]int{}}
	deadLetters, next, err := t.scan(ctx, q, b.from(), b.Limit)
	if err != nil {
		return r, err
	}
	if next != "" {
		r.Next = &Cursor{ID: next}
	}
	if b.DryRun {
		r.Done = len(deadLetters)
		return r, nil
	}
	ids := map[int][]string{}
	for i := range deadLetters {
		at := t.placeOf(deadLetters[i])
		ids[at.stream] = append(ids[at.stream], at.entry)
	}
	for stream, some := range ids {
		n, err := t.deadLetters.Delete(ctx, stream, some...)
		if r.Done += n; err != nil {
			return r, err
		}
	}
	return r, nil
}

// place is where a topic's dead letter lies, or where a look at them goes on: after entry of its stream.
type place struct {
	apart  bool // each partition has a stream of its own: contract §6, on a cluster
	stream int
	entry  string // "": before the first
}

// placeOf is where a dead letter lies.
func (t *Topic) placeOf(l streammq.Letter) place {
	if !t.deadLetters.Apart() {
		return place{entry: l.ID}
	}
	return place{apart: true, stream: l.Partition, entry: l.ID}
}

// parsePlace reads what String wrote. Error: ErrNotFound.
func parsePlace(id string, apart bool) (place, error) {
	p := place{apart: apart, entry: id}
	if apart {
		stream, entry, ok := strings.Cut(id, ":")
		n, err := strconv.Atoi(stream)
		if !ok || err != nil || n < 0 || n >= streammq.MaxPartitions {
			return p, fmt.Errorf("dead letter %.40q: %w: partition:entry is an id here", id, ErrNotFound)
		}
		p.stream, p.entry = n, entry
	}
	if p.entry == "" {
		return p, nil
	}
	if _, err := streammq.PositionAfter(p.entry); err != nil {
		return p, fmt.Errorf("dead letter %.40q: %w", id, ErrNotFound)
	}
	return p, nil
}

// String is the place as an id, or a cursor.
func (p place) String() string {
	if !p.apart {
		return p.entry
	}
	return strconv.Itoa(p.stream) + ":" + p.entry
}

// partition is the stream as streammq is asked for it.
func (p place) partition() int {
	if !p.apart {
		return -1
	}
	return p.stream
}

// onward is the beginning of the next stream.
func (p place) onward() place { return place{apart: p.apart, stream: p.stream + 1} }

// before is the cursor to go on from, "" when all streams up to end were looked at.
func (p place) before(end int) string {
	if p.stream >= end {
		return ""
	}
	return p.String()
}
