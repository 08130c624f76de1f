package local

import "context"

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

// Until waits until look says yes; look returns what is closed at the next change, too. It reports whether ctx goes on.
func Until(ctx context.Context, look func() (yes bool, changed <-chan struct{})) bool {
	for {
		yes, changed := look()
		if yes {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
