package spec

// canon makes worlds that differ only in the names of equal parts the same; swapped tells that the workers changed places.
func (m *Model) canon(w *World) (swapped bool) {
	w.settle()
	w.compact()
	if w.before() {
		w.swap()
		return true
	}
	return false
}

// settle forgets what nobody can see any more.
func (w *World) settle() {
	for t := range w.Rows {
		r := &w.Rows[t]
		if r.State == stSucceeded {
			r.Delivery, r.Attempts, r.Crashes, r.Log.Attempts, r.Log.Crashes = 0, 0, 0, 0, 0
		}
		if r.State != stRunning {
			r.Claimant, r.Slept = ownerNone, false
		}
		if r.State != stQueued {
			for i := range w.Stream {
				w.Stream[i].Since &^= 1 << t
			}
		}
	}
	for i := range w.Stream {
		if w.Stream[i].Kind == entryPending {
			w.Stream[i].Since = 0
		}
	}
}

// before reports whether the world reads better with its workers exchanged.
func (w *World) before() bool {
	a, b := w.Workers[0].rank(), w.Workers[1].rank()
	if a != b {
		return b < a
	}
	for i := range w.Stream {
		switch w.Stream[i].Own {
		case ownerOf(0):
			return false
		case ownerOf(1):
			return true
		default:
		}
	}
	for t := range w.Rows {
		if o := w.Rows[t].Owner; o >= ownerOf(0) {
			return o >= ownerOf(1)
		}
	}
	return false
}

// rank orders workers.
func (x *Worker) rank() uint64 {
	bit := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	out := uint64(x.At)<<8 | uint64(x.Pause)
	for _, part := range []uint64{
		uint64(x.Task), uint64(x.Entry), uint64(x.Fence), uint64(x.Line)<<4 | uint64(x.Old), uint64(x.No)<<3 | bit(x.Had)<<1 | bit(x.Debt),
	} {
		out = out<<7 | part
	}
	return out<<6 | uint64(x.Doing)
}

// swap exchanges the workers and every mention of them.
func (w *World) swap() {
	w.Workers[0], w.Workers[1] = w.Workers[1], w.Workers[0]
	other := [...]Owner{ownerNone, ownerGone, ownerOf(1), ownerBefore(1), ownerOf(0), ownerBefore(0)}
	for t := range w.Rows {
		w.Rows[t].Owner, w.Rows[t].Claimant = other[w.Rows[t].Owner], other[w.Rows[t].Claimant]
	}
	for i := range w.Stream {
		w.Stream[i].Own = other[w.Stream[i].Own]
	}
}
