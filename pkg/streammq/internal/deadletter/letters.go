// Package deadletter lists, replays and removes dead letters, and consumes them.
package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/dlq"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// LetterQuery chooses dead letters of a topic.
type LetterQuery struct {
	Partition int    // -1: all
	Group     string // "": all
	After     string // letters with greater ids; "": from the first. On a cluster it counts within one partition
	Limit     int    // most letters to return, 0: 100; to replay, 0: all
	// Unreplayed leaves out letters that were replayed.
	Unreplayed bool
	// Match, if set, is asked for each.
	Match func(*wire.Letter) bool
}

const maxDeadLetters = 10_000

// Letters is the dead letters of one topic, of one single stream, or of a stream of their own.
type Letters struct{ in dlq.LetterPlace }

// New gives access to a topic's dead letters.
func New(q *core.Core, topic string) *Letters { return &Letters{dlq.LetterPlace{Mq: q, Topic: topic}} }

// OfStream gives access to a single stream's dead letters.
func OfStream(q *core.Core, streamKey string) *Letters {
	return &Letters{dlq.LetterPlace{Mq: q, Topic: streamKey, Single: true}}
}

// Named gives access to the dead letters in a stream of their own.
func Named(q *core.Core, key string) *Letters { return &Letters{dlq.LetterPlace{Mq: q, Named: key}} }

// String names them in errors.
func (l *Letters) String() string { return l.in.String() }

// Apart tells whether each partition has a stream of dead letters of its own, within which ids count and which is asked for by its
// partition: so it is on a cluster.
func (l *Letters) Apart() bool { return l.in.Apart() }

// homes are the streams that a query looks through. Errors: ErrConfig when its limit is negative, ErrUnknownTopic, ErrUnavailable.
func (l *Letters) homes(ctx context.Context, query LetterQuery) ([]dlq.LetterHome, error) {
	if query.Limit < 0 {
		return nil, fmt.Errorf("%w: Limit %d: must not be negative", model.ErrConfig, query.Limit)
	}
	return l.in.Homes(ctx, query.Partition)
}

// List returns letters from the oldest on, on a cluster partition by partition.
// Errors: ErrConfig when the limit is negative, ErrEntryID, ErrUnknownTopic, ErrUnavailable.
func (l *Letters) List(ctx context.Context, query LetterQuery) ([]wire.Letter, error) {
	homes, err := l.homes(ctx, query)
	if err != nil {
		return nil, err
	}
	limit := min(cmp.Or(query.Limit, model.PageSize), maxDeadLetters)
	var list []wire.Letter
	for _, home := range homes {
		found := 0
		err := l.each(ctx, home, query, func(letter wire.Letter) bool {
			list = append(list, letter)
			found++
			return found < limit
		})
		if err != nil || len(list) >= limit && !l.in.Split() {
			return list[:min(limit, len(list))], err
		}
	}
	if l.in.Split() {
		slices.SortStableFunc(list, func(a, b wire.Letter) int { return stream.CompareIDs(a.ID, b.ID) })
	}
	return list[:min(limit, len(list))], nil
}

// each pages through one stream of dead letters until use returns false.
func (l *Letters) each(ctx context.Context, home dlq.LetterHome, query LetterQuery, use func(wire.Letter) bool) error {
	from := "-"
	if query.After != "" {
		from = "(" + query.After
	}
	for {
		entries, err := l.in.Mq.Client.Do(ctx, l.in.Mq.Client.B().Xrange().Key(home.Dlq).Start(from).End("+").Count(model.PageSize).Build()).AsXRange()
		if err != nil {
			return model.Failure(ctx, "list dead letters", err)
		}
		letters, err := l.decode(ctx, home, entries)
		if err != nil {
			return err
		}
		for i := range letters {
			if query.wants(&letters[i]) && !use(letters[i]) {
				return nil
			}
		}
		if len(entries) < model.PageSize {
			return nil
		}
		from = "(" + entries[len(entries)-1].ID
	}
}

func (query *LetterQuery) wants(letter *wire.Letter) bool {
	return (query.Partition < 0 || letter.Partition == query.Partition) &&
		(query.Group == "" || letter.Group == query.Group) &&
		(!query.Unreplayed || letter.Replayed == "") &&
		(query.Match == nil || query.Match(letter))
}

// Get returns one dead letter; on a cluster partition says where it is, otherwise it is not looked at.
// Errors: ErrNotFound, ErrEntryID, ErrUnavailable.
func (l *Letters) Get(ctx context.Context, partition int, id string) (wire.Letter, error) {
	home := l.in.HomeOf(partition, id)
	if l.in.Mq.Cfg.Layout == model.LayoutSingle {
		home = l.in.HomeOf(0, id)
	}
	entries, err := l.in.Mq.Client.Do(ctx, l.in.Mq.Client.B().Xrange().Key(home.Dlq).Start(id).End(id).Build()).AsXRange()
	if err != nil {
		return wire.Letter{}, model.Failure(ctx, "read dead letter "+id, err)
	}
	letters, err := l.decode(ctx, home, entries)
	if err == nil && len(letters) == 0 {
		err = fmt.Errorf("dead letter %s of %s: %w", id, l, model.ErrNotFound)
	}
	if err != nil {
		return wire.Letter{}, err
	}
	return letters[0], nil
}

func (l *Letters) decode(ctx context.Context, home dlq.LetterHome, entries []rueidis.XRangeEntry) ([]wire.Letter, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.ID
	}
	marks, err := l.in.Mq.Client.Do(ctx, l.in.Mq.Client.B().Hmget().Key(home.Replayed).Field(ids...).Build()).ToArray()
	if err != nil {
		return nil, model.Failure(ctx, "read replays of dead letters", err)
	}
	letters := make([]wire.Letter, len(entries))
	for i, e := range entries {
		letters[i] = wire.DecodeDeadLetter(e.ID, e.FieldValues)
		if l.in.Named == "" {
			letters[i].Topic, letters[i].Single = l.in.Topic, l.in.Single
		}
		if l.in.Apart() { // what could not be read may not name it
			letters[i].Partition = home.Part
		}
		letters[i].Replayed = stream.Text(marks[i]) // nil: it was not
	}
	return letters, nil
}

// Replay adds a dead letter's message to its partition again, for the group that gave it up, with all its attempts before it,
// and marks the dead letter in the same step: once, however many ask. The dead letter stays until it is deleted.
// It returns the id of the new entry. Errors: ErrReplayed, ErrMalformed (it has no message), ErrNotFound, ErrEntryID, ErrUnavailable.
func (l *Letters) Replay(ctx context.Context, letter wire.Letter) (string, error) {
	if letter.Raw != nil {
		return "", fmt.Errorf("dead letter %s: %w: its entry could not be read", letter.ID, model.ErrMalformed)
	}
	home := core.Source{Layout: l.in.Mq.Cfg.Layout, Topic: letter.Topic, Part: letter.Partition, Single: letter.Single}
	if l.in.Named == "" {
		home = l.in.Source(letter.Partition)
	}
	e := fence.Again(home, letter.Group, wire.EntryOf(&letter), letter.OriginalID)
	at := l.in.Home(home)
	if l.in.Split() {
		at = l.in.HomeOf(0, letter.ID)
	}
	if l.in.Named != "" && l.in.Mq.Cfg.Layout == model.LayoutCluster {
		return l.replayFar(ctx, letter, home, e)
	}
	answer, err := l.in.Mq.Run(ctx, l.in.Mq.Scripts.LetterReplay, []string{at.Dlq, at.Replayed, home.Stream()},
		append([]string{letter.ID}, e.Fields()...)...).ToArray()
	if err != nil {
		return "", model.Failure(ctx, "replay dead letter "+letter.ID, err)
	}
	code, err := answer[0].AsInt64()
	switch {
	case err != nil:
		return "", err
	case code == -2:
		return "", fmt.Errorf("replay dead letter %s to %s: %w: its stream is not there", letter.ID, home.Stream(), model.ErrUnknownTopic)
	case code < 0:
		return "", fmt.Errorf("dead letter %s of %s: %w", letter.ID, l, model.ErrNotFound)
	}
	id, err := answer[1].ToString()
	if err == nil && code == 0 {
		err = fmt.Errorf("dead letter %s, as entry %s: %w", letter.ID, id, model.ErrReplayed)
	}
	return id, err
}

// replayFar is Replay where the dead letter and its message's partition lie in two slots: at least once.
func (l *Letters) replayFar(ctx context.Context, letter wire.Letter, home core.Source, e wire.Entry) (string, error) {
	now, err := l.Get(ctx, 0, letter.ID)
	if err != nil {
		return "", err
	}
	if now.Replayed != "" {
		return now.Replayed, fmt.Errorf("dead letter %s, as entry %s: %w", letter.ID, now.Replayed, model.ErrReplayed)
	}
	add := l.in.Mq.Client.B().Arbitrary("XADD").Keys(home.Stream()).Args("NOMKSTREAM", "*").Args(e.Fields()...)
	id, err := l.in.Mq.Client.Do(ctx, add.Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", fmt.Errorf("replay dead letter %s to %s: %w: its stream is not there", letter.ID, home.Stream(), model.ErrUnknownTopic)
	}
	if err != nil {
		return "", model.Failure(ctx, "replay dead letter "+letter.ID, err)
	}
	mark := l.in.Mq.Client.B().Hset().Key(l.in.Home(home).Replayed).FieldValue().FieldValue(letter.ID, id)
	return id, model.Failure(ctx, "mark dead letter "+letter.ID+" as replayed", l.in.Mq.Client.Do(ctx, mark.Build()).Error())
}

// ReplayAll replays what the query chooses and was not replayed, at most perSecond letters a second (0: no limit), and
// returns how many it did. It can be called again after an error: what was replayed is not replayed again.
// With dryRun it only counts. Errors: as of List and Replay.
func (l *Letters) ReplayAll(ctx context.Context, query LetterQuery, perSecond int, dryRun bool) (int, error) {
	homes, err := l.homes(ctx, query)
	if err != nil {
		return 0, err
	}
	query.Unreplayed = true
	count, began := 0, l.in.Mq.Cfg.Now()
	for _, home := range homes {
		var failed error
		err := l.each(ctx, home, query, func(letter wire.Letter) bool {
			if !dryRun {
				_, failed = l.Replay(ctx, letter)
				switch {
				case errors.Is(failed, model.ErrReplayed), errors.Is(failed, model.ErrNotFound), errors.Is(failed, model.ErrMalformed), errors.Is(failed, model.ErrUnknownTopic):
					failed = nil // somebody was faster, or there is nothing to replay
					return true
				case failed != nil:
					return false
				}
				if perSecond > 0 { // wait until they are not too many for the time since began
					ahead := time.Duration(count+1)*time.Second/time.Duration(perSecond) - l.in.Mq.Cfg.Now().Sub(began)
					failed = stream.Sleep(ctx, max(0, ahead))
				}
			}
			count++
			return failed == nil && (query.Limit <= 0 || count < query.Limit)
		})
		if err = errors.Join(err, failed); err != nil || query.Limit > 0 && count >= query.Limit {
			return count, err
		}
	}
	return count, nil
}

// Delete removes letters of one partition (looked at on a cluster only) and returns how many there were. Errors: ErrEntryID,
// ErrUnavailable.
func (l *Letters) Delete(ctx context.Context, partition int, ids ...string) (int, error) {
	total := 0
	byHome := map[dlq.LetterHome][]string{}
	for _, id := range ids {
		home := l.in.HomeOf(partition, id)
		byHome[home] = append(byHome[home], id)
	}
	for home, ids := range byHome {
		for some := range slices.Chunk(ids, model.MaxBatch) {
			deleted, err := l.in.Mq.Run(ctx, l.in.Mq.Scripts.LetterDelete, []string{home.Dlq, home.Replayed}, some...).AsInt64()
			if err != nil {
				return total, model.Failure(ctx, "delete dead letters of "+l.String(), err)
			}
			total += int(deleted)
		}
	}
	return total, nil
}

// Clear removes all dead letters of the topic, and their marks.
func (l *Letters) Clear(ctx context.Context) error {
	homes, err := l.in.Homes(ctx, -1)
	if err != nil {
		return err
	}
	for _, home := range homes {
		if err := l.in.Mq.Client.Do(ctx, l.in.Mq.Client.B().Unlink().Key(home.Dlq, home.Replayed).Build()).Error(); err != nil {
			return model.Failure(ctx, "clear dead letters of "+l.String()+" partition "+strconv.Itoa(home.Part), err)
		}
	}
	return nil
}

// Trim removes the dead letters that the retention does not keep, with their marks, and returns their number. Letters that a group
// consumes and has not finished stay. Errors: ErrConfig when the retention is negative, ErrUnknownTopic, ErrUnavailable.
func (l *Letters) Trim(ctx context.Context, r model.Retention) (int, error) {
	if err := model.ValidateRetention(r); err != nil {
		return 0, err
	}
	homes, err := l.in.Homes(ctx, -1)
	if err != nil {
		return 0, err
	}
	return l.in.TrimHomes(ctx, homes, r)
}
