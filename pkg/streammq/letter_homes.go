package streammq

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// letterPlace is where the dead letters of one topic, of one single stream, or of a stream of their own are.
type letterPlace struct {
	mq     *core
	topic  string
	single bool
	named  string // not empty: a stream of letters with that key, whatever they are of
}

// letterHome is one stream of dead letters.
type letterHome struct {
	source
	dlq, replayed string
}

func (l letterPlace) home(s source) letterHome {
	if l.named != "" {
		return letterHome{s, l.named, beside(l.named, "replayed")}
	}
	return letterHome{s, s.dlq(), s.replayed()}
}

// homeOf is where a letter with this id is, or would be. On one Redis a topic's dead letters are in two streams, see Config.Letters; the
// id tells which.
func (l letterPlace) homeOf(partition int, id string) letterHome {
	home := l.home(l.source(max(0, partition)))
	if l.split() && ownDeadLetter(id) {
		home.dlq, home.replayed = home.ownDeadLetters(), home.ownReplayed()
	}
	return home
}

// split tells whether the dead letters are in two streams.
func (l letterPlace) split() bool { return l.named == "" && !l.source(0).apart() }

// String names them in errors.
func (l letterPlace) String() string { return l.topic + l.named }

func (l letterPlace) source(partition int) source {
	return source{layout: l.mq.cfg.Layout, topic: l.topic, part: partition, single: l.single}
}

// apart tells whether each partition has a stream of dead letters of its own, within which ids count and which is asked for by its
// partition: so it is on a cluster.
func (l letterPlace) apart() bool {
	return !l.single && l.named == "" && l.mq.cfg.Layout == LayoutCluster
}

// homes are the streams that the dead letters are in.
func (l letterPlace) homes(ctx context.Context, partition int) ([]letterHome, error) {
	first := l.home(l.source(0))
	switch {
	case l.split():
		return []letterHome{first, l.homeOf(0, firstOwnDeadLetter)}, nil
	case !l.apart():
		return []letterHome{first}, nil
	case partition >= 0:
		return []letterHome{l.home(l.source(partition))}, nil
	}
	n, err := l.mq.Partitions(ctx, l.topic)
	homes := make([]letterHome, n)
	for i := range homes {
		homes[i] = l.home(l.source(i))
	}
	return homes, err
}

// trim removes what the retention does not keep of what the dead letters of one source are in, with their marks.
func (l letterPlace) trim(ctx context.Context, s source, r Retention) (int, error) {
	homes := []letterHome{l.home(s)}
	if l.split() {
		homes = append(homes, l.homeOf(0, firstOwnDeadLetter))
	}
	return l.trimHomes(ctx, homes, r)
}

// trimHomes trims each stream of dead letters by itself.
func (l letterPlace) trimHomes(ctx context.Context, homes []letterHome, r Retention) (int, error) {
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
func (l letterPlace) forget(ctx context.Context, at letterHome) error {
	b, doing := l.mq.Client.B, "remove the marks of dead letters of "+l.String()
	results := l.mq.Client.DoMulti(ctx, b().Xrange().Key(at.dlq).Start("-").End("+").Count(1).Build(), b().Hkeys().Key(at.replayed).Build())
	if err := stream.FirstError(results); err != nil && !rueidis.IsRedisNil(err) {
		return failure(ctx, doing, err)
	}
	first := oneID(results[0])
	marks, _ := results[1].AsStrSlice() // an error was judged above
	var gone []string
	for _, id := range marks {
		if first == "" || stream.CompareIDs(id, first) < 0 {
			gone = append(gone, id)
		}
	}
	for len(gone) > 0 {
		n := min(len(gone), maxBatch)
		if err := l.mq.Client.Do(ctx, b().Hdel().Key(at.replayed).Field(gone[:n]...).Build()).Error(); err != nil {
			return failure(ctx, doing, err)
		}
		gone = gone[n:]
	}
	return nil
}
