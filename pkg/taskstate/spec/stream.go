package spec

// entry returns entry n; the zero Entry for none.
func (w *World) entry(n uint8) Entry {
	if n == 0 {
		return Entry{}
	}
	return w.Stream[n-1]
}

// add is XADD; ok is false when the world has no room.
func (w *World) add(t uint8) (ok bool) {
	n := w.last()
	if n == maxEntries {
		w.compact()
		n = w.last()
	}
	if n == maxEntries {
		return false
	}
	w.Stream[n] = Entry{Kind: entryNew, Task: t, Since: w.stale()}
	return true
}

// last is the number of the last entry.
func (w *World) last() int {
	for n := maxEntries; n > 0; n-- {
		if w.Stream[n-1].Kind != entryNone {
			return n
		}
	}
	return 0
}

// stale are the tasks, as bits, whose wake_at lies further back than the slack.
func (w *World) stale() uint8 {
	var out uint8
	for t := range w.Rows {
		if w.Rows[t].Stale {
			out |= 1 << t
		}
	}
	return out
}

// ack is XACK; it reports whether the entry was pending.
func (w *World) ack(n uint8) bool {
	if w.entry(n).Kind != entryPending {
		return false
	}
	w.remove(n)
	return true
}

// remove forgets an entry: its id stands for nothing any more, wherever it is noted.
func (w *World) remove(n uint8) {
	w.Stream[n-1] = Entry{}
	w.rename(func(old uint8) uint8 {
		if old == n {
			return 0
		}
		return old
	})
}

// compact closes gaps, so that equal worlds look equal.
func (w *World) compact() {
	var to [maxEntries + 1]uint8
	var stream [maxEntries]Entry
	n, gaps := 0, false
	for i, e := range w.Stream {
		if e.Kind == entryNone {
			continue
		}
		gaps = gaps || n != i
		stream[n] = e
		n++
		to[i+1] = uint8(n)
	}
	if !gaps {
		return
	}
	w.Stream = stream
	w.rename(func(old uint8) uint8 { return to[old] })
}

// rename gives every noted entry its new number.
func (w *World) rename(f func(old uint8) uint8) {
	for i := range w.Rows {
		w.Rows[i].Delivery = f(w.Rows[i].Delivery)
	}
	for i := range w.Workers {
		w.Workers[i].Entry, w.Workers[i].Old = f(w.Workers[i].Entry), f(w.Workers[i].Old)
	}
	for i := range w.Loops {
		w.Loops[i].Entry = f(w.Loops[i].Entry)
	}
}

// first is the first undelivered entry; 0: none.
func (w *World) first() uint8 {
	for i, e := range w.Stream {
		if e.Kind == entryNew {
			return uint8(i + 1)
		}
	}
	return 0
}

// lost are the tasks, as bits, whose wake_at lies before the read watermark less the slack, whatever their status (design D5).
func (w *World) lost() uint8 {
	if n := w.first(); n != 0 {
		return w.entry(n).Since
	}
	return w.stale()
}

// flush is FLUSHALL.
func (w *World) flush() {
	for i := range w.Stream {
		if w.Stream[i].Kind != entryNone {
			w.remove(uint8(i + 1))
		}
	}
}
