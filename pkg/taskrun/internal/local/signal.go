package local

// signal tells whoever waits of a change. A channel exists only while somebody waits, since most changes are news to nobody.
// Its owner's mutex guards it.
type signal struct{ waiting chan struct{} }

// ring wakes everybody who waits.
func (b *signal) ring() {
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}

// wait returns a channel that is closed at the next ring.
func (b *signal) wait() <-chan struct{} {
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}
