package kafkaq

import "sort"

// window knows which records of a partition were given out and which of them are finished. Records end in any order;
// the offset that may be committed is that of the first one that is not finished. Not safe for concurrent use.
type window struct {
	open []mark // in the order of offsets; the first one is never finished
	next int64  // the offset after the last one that was added
}

// mark is one record.
type mark struct {
	offset int64
	done   bool
}

// add takes a record that came. Offsets grow, but may leave gaps: transactions and compaction make some.
func (w *window) add(offset int64) {
	w.open = append(w.open, mark{offset: offset})
	w.next = offset + 1
}

// finish marks a record and returns the offset that may be committed now, if that moved.
func (w *window) finish(offset int64) (commit int64, moved bool) {
	i, ok := w.find(offset)
	if !ok {
		return 0, false
	}
	w.open[i].done = true
	n := 0
	for n < len(w.open) && w.open[n].done {
		n++
	}
	if n == 0 {
		return 0, false
	}
	if w.open = w.open[n:]; len(w.open) == 0 {
		w.open = nil // let go of what was finished
		return w.next, true
	}
	return w.open[0].offset, true
}

// find gives a record's place among those that were added.
func (w *window) find(offset int64) (int, bool) {
	i := sort.Search(len(w.open), func(i int) bool { return w.open[i].offset >= offset })
	return i, i < len(w.open) && w.open[i].offset == offset
}

// holds tells whether a record was added and is not finished.
func (w *window) holds(offset int64) bool {
	i, ok := w.find(offset)
	return ok && !w.open[i].done
}

// size is how many records were added since the one that holds the commit back.
func (w *window) size() int { return len(w.open) }

// unfinished is how many of them are not finished.
func (w *window) unfinished() int {
	n := 0
	for _, m := range w.open {
		if !m.done {
			n++
		}
	}
	return n
}
