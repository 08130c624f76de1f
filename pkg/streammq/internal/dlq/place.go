// Package dlq knows which streams the dead letters of a topic lie in, and keeps ours apart from those of the Java original.
package dlq

import (
	"context"
	"slices"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// LetterPlace is where the dead letters of one topic, of one single stream, or of a stream of their own are.
type LetterPlace struct {
	Mq     *core.Core
	Topic  string
	Single bool
	Named  string // not empty: a stream of letters with that key, whatever they are of
}

// LetterHome is one stream of dead letters.
type LetterHome struct {
	core.Source
	Dlq, Replayed string
}

func (l LetterPlace) Home(s core.Source) LetterHome {
	if l.Named != "" {
		return LetterHome{s, l.Named, core.Beside(l.Named, "replayed")}
	}
	return LetterHome{s, s.Dlq(), s.Replayed()}
}

// HomeOf is where a letter with this id is, or would be. On one Redis a topic's dead letters are in two streams, see Config.Letters; the
// id tells which.
func (l LetterPlace) HomeOf(partition int, id string) LetterHome {
	home := l.Home(l.Source(max(0, partition)))
	if l.Split() && ownDeadLetter(id) {
		home.Dlq, home.Replayed = home.OwnDeadLetters(), home.OwnReplayed()
	}
	return home
}

// Split tells whether the dead letters are in two streams.
func (l LetterPlace) Split() bool { return l.Named == "" && !l.Source(0).Apart() }

// String names them in errors.
func (l LetterPlace) String() string { return l.Topic + l.Named }

func (l LetterPlace) Source(partition int) core.Source {
	return core.Source{Layout: l.Mq.Cfg.Layout, Topic: l.Topic, Part: partition, Single: l.Single}
}

// Apart tells whether each partition has a stream of dead letters of its own, within which ids count and which is asked for by its
// partition: so it is on a cluster.
func (l LetterPlace) Apart() bool {
	return !l.Single && l.Named == "" && l.Mq.Cfg.Layout == model.LayoutCluster
}

// Homes are the streams that the dead letters are in.
func (l LetterPlace) Homes(ctx context.Context, partition int) ([]LetterHome, error) {
	first := l.Home(l.Source(0))
	switch {
	case l.Split():
		return []LetterHome{first, l.HomeOf(0, firstOwnDeadLetter)}, nil
	case !l.Apart():
		return []LetterHome{first}, nil
	case partition >= 0:
		return []LetterHome{l.Home(l.Source(partition))}, nil
	}
	n, err := l.Mq.Topics.Partitions(ctx, l.Topic)
	homes := make([]LetterHome, n)
	for i := range homes {
		homes[i] = l.Home(l.Source(i))
	}
	return homes, err
}

// Trim removes what the retention does not keep of what the dead letters of one source are in, with their marks.
func (l LetterPlace) Trim(ctx context.Context, s core.Source, r model.Retention) (int, error) {
	homes := []LetterHome{l.Home(s)}
	if l.Split() {
		homes = append(homes, l.HomeOf(0, firstOwnDeadLetter))
	}
	return l.TrimHomes(ctx, homes, r)
}

// TrimHomes trims each stream of dead letters by itself.
func (l LetterPlace) TrimHomes(ctx context.Context, homes []LetterHome, r model.Retention) (int, error) {
	total := 0
	for _, at := range homes {
		n, _, err := l.Mq.TrimStream(ctx, at.Dlq, r, false)
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
func (l LetterPlace) forget(ctx context.Context, at LetterHome) error {
	b, doing := l.Mq.Client.B, "remove the marks of dead letters of "+l.String()
	results := l.Mq.Client.DoMulti(ctx, b().Xrange().Key(at.Dlq).Start("-").End("+").Count(1).Build(), b().Hkeys().Key(at.Replayed).Build())
	if err := stream.FirstError(results); err != nil && !rueidis.IsRedisNil(err) {
		return model.Failure(ctx, doing, err)
	}
	first := core.OneID(results[0])
	marks, _ := results[1].AsStrSlice() // an error was judged above
	var gone []string
	for _, id := range marks {
		if first == "" || stream.CompareIDs(id, first) < 0 {
			gone = append(gone, id)
		}
	}
	for some := range slices.Chunk(gone, model.MaxBatch) {
		if err := l.Mq.Client.Do(ctx, b().Hdel().Key(at.Replayed).Field(some...).Build()).Error(); err != nil {
			return model.Failure(ctx, doing, err)
		}
	}
	return nil
}
