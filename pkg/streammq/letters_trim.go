package streammq

import (
	"context"

	"github.com/redis/rueidis"
)

// Trim removes the dead letters that the retention does not keep, with their marks, and returns their number. Letters that a group
// consumes and has not finished stay. Errors: ErrConfig when the retention is negative, ErrUnknownTopic, ErrUnavailable.
func (l *Letters) Trim(ctx context.Context, r Retention) (int, error) {
	if err := r.validate(); err != nil {
		return 0, err
	}
	homes, err := l.homes(ctx, -1)
	if err != nil {
		return 0, err
	}
	return l.trimHomes(ctx, homes, r)
}

// trim is Trim of what the dead letters of one source are in.
func (l *Letters) trim(ctx context.Context, s source, r Retention) (int, error) {
	homes := []letterHome{l.home(s)}
	if l.split() {
		homes = append(homes, l.homeOf(0, firstOwnDeadLetter))
	}
	return l.trimHomes(ctx, homes, r)
}

// trimHomes trims each stream of dead letters by itself.
func (l *Letters) trimHomes(ctx context.Context, homes []letterHome, r Retention) (int, error) {
	total := 0
	for _, at := range homes {
		n, _, err := l.mq.trimStream(ctx, at.dlq, r, false)
		total += n
		if err == nil && n > 0 {
			err = l.forget(ctx, at)
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// forget removes the marks of replayed letters that are gone.
func (l *Letters) forget(ctx context.Context, at letterHome) error {
	b, doing := l.mq.client.B, "remove the marks of dead letters of "+l.String()
	results := l.mq.client.DoMulti(ctx, b().Xrange().Key(at.dlq).Start("-").End("+").Count(1).Build(), b().Hkeys().Key(at.replayed).Build())
	if err := firstError(results); err != nil && !rueidis.IsRedisNil(err) {
		return failure(ctx, doing, err)
	}
	first := oneID(results[0])
	marks, _ := results[1].AsStrSlice() // an error was judged above
	var gone []string
	for _, id := range marks {
		if first == "" || compareIDs(id, first) < 0 {
			gone = append(gone, id)
		}
	}
	for len(gone) > 0 {
		n := min(len(gone), letterBatch)
		if err := l.mq.client.Do(ctx, b().Hdel().Key(at.replayed).Field(gone[:n]...).Build()).Error(); err != nil {
			return failure(ctx, doing, err)
		}
		gone = gone[n:]
	}
	return nil
}
