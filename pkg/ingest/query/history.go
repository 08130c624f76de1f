package query

import (
	"context"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// settled is when what ended in a span of time does not change any more: a transaction that ends tasks has its time from when it began,
// and no statement takes so long.
const settled = 2 * time.Minute

// pasts are spans of time that do not change any more, so that each is read once in a process.
type pasts struct {
	mu   sync.Mutex
	kept map[ingest.Span]map[time.Time]ingest.Bucket
}

// History says what ended in each part of the last hour or day, the oldest first, and how long that took from upload to searchable.
// Each part that is not known yet takes two statements of at most 10,000 entries of an index, and two of 100 tasks.
func (r *Reads) History(ctx context.Context, span ingest.Span) (out ingest.History, err error) {
	m, err := r.store.Moment(ctx)
	if err != nil {
		return out, err
	}
	out.Step = span.Step()
	last := m.Now.UTC().Truncate(out.Step)
	for at := last.Add(-span.Length() + out.Step); !at.After(last); at = at.Add(out.Step) {
		b, known := r.past.get(span, at)
		if !known {
			p, err := r.store.Past(ctx, at, at.Add(out.Step))
			if err != nil {
				return out, err
			}
			b = ingest.Bucket{At: at, Past: taskstate.Past{Succeeded: p.Succeeded, Dead: p.Dead, AtLeast: p.AtLeast}, Half: p.TookAt(50), Most: p.TookAt(95), Sampled: len(p.Took)}
			if at.Add(out.Step + settled).Before(m.Now) {
				r.past.keep(span, b, last.Add(-span.Length()))
			}
		}
		out.Buckets = append(out.Buckets, b)
	}
	return out, nil
}

func (k *pasts) get(span ingest.Span, at time.Time) (ingest.Bucket, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, ok := k.kept[span][at]
	return b, ok
}

// keep remembers a part, and forgets those from before a time.
func (k *pasts) keep(span ingest.Span, b ingest.Bucket, before time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept == nil {
		k.kept = map[ingest.Span]map[time.Time]ingest.Bucket{}
	}
	if k.kept[span] == nil {
		k.kept[span] = map[time.Time]ingest.Bucket{}
	}
	k.kept[span][b.At] = b
	for at := range k.kept[span] {
		if at.Before(before) {
			delete(k.kept[span], at)
		}
	}
}
