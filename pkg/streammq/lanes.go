package streammq

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// runAll runs the entries of a batch: one after another, or with Concurrency in lanes beside each other. It returns
// when no handler runs any more. Errors: the first one, as of handle.
func (w *worker) runAll(ctx context.Context, parcels []parcel) error {
	if len(w.began) == 1 || len(parcels) < 2 {
		for i := range parcels {
			if err := w.next(ctx, &parcels[i], 0); err != nil {
				return err
			}
		}
		return nil
	}
	chains := chainsOf(parcels)
	var taken atomic.Int64
	var failed atomic.Pointer[error]
	var lanes sync.WaitGroup
	for lane := range min(len(w.began), len(chains)) {
		lanes.Go(func() {
			for i := taken.Add(1) - 1; i < int64(len(chains)); i = taken.Add(1) - 1 {
				for _, p := range chains[i] {
					if failed.Load() != nil {
						return
					}
					if err := w.next(ctx, p, lane); err != nil {
						failed.CompareAndSwap(nil, &err)
						return
					}
				}
			}
		})
	}
	lanes.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// chainsOf are the entries of each key, in their order: a chain is run by one lane. An entry without a key, or one that
// cannot be read, is a chain of its own. The chains come in the order of their first entries.
func chainsOf(parcels []parcel) [][]*parcel {
	var chains [][]*parcel
	at := make(map[string]int, len(parcels))
	for i := range parcels {
		p := &parcels[i]
		key := p.entry.key
		if n, ok := at[key]; ok && key != "" {
			chains[n] = append(chains[n], p)
			continue
		}
		at[key] = len(chains)
		chains = append(chains, []*parcel{p})
	}
	return chains
}

// opened notes what was read, for those who keep it from being taken for forgotten.
func (w *worker) opened(entries []raw) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = w.open[:0]
	for _, e := range entries {
		w.open = append(w.open, held{e.id, e.deliveries})
	}
}

// closed takes one of these out: the first, or with lanes one near it.
func (w *worker) closed(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.open, func(h held) bool { return h.id == id }); i == 0 {
		w.open = w.open[1:]
	} else if i > 0 {
		w.open = slices.Delete(w.open, i, i+1)
	}
}

// stillOpen are the deliveries that this worker answers for: those read, and those that their handlers will settle.
func (w *worker) stillOpen() []held {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := append([]held(nil), w.open...)
	for s := range w.promised {
		open = append(open, held{s.parcel.id, s.parcel.deliveries})
	}
	return open
}

// longest is the time, by MQ.elapsed, when the handler began that has run for longest; 0: none runs.
func (w *worker) longest() int64 {
	first := int64(0)
	for i := range w.began {
		if at := w.began[i].Load(); at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}
