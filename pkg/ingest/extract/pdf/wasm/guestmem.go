package wasm

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// guestMemory is an instance's memory outside Go's heap: it grows in place, without the copy that doubles the
// peak, and is given back to the system at once when the instance ends.
type guestMemory struct {
	reserved []byte
	size     int
}

// newGuestMemory reserves address space for max bytes; nothing is used before it grows.
func newGuestMemory(_, maxBytes uint64) experimental.LinearMemory {
	reserved, err := unix.Mmap(-1, 0, int(max(maxBytes, 1)), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return &guestMemory{}
	}
	return &guestMemory{reserved: reserved}
}

// Reallocate implements experimental.LinearMemory; nil when the limit is reached, or when Go's heap would have no room for a copy of half of
// it: a guest that gets no memory ends alone, a heap that gets none ends the child.
func (m *guestMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.reserved)) {
		return nil
	}
	if n := int(size); n > m.size {
		room, err := unix.Mmap(-1, 0, n-m.size+n/2, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			return nil
		}
		_ = unix.Munmap(room)
		if err := unix.Mprotect(m.reserved[m.size:n], unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return nil
		}
		m.size = n
	}
	return m.reserved[:size:size]
}

// Free implements experimental.LinearMemory.
func (m *guestMemory) Free() {
	if m.reserved != nil {
		_ = unix.Munmap(m.reserved)
		m.reserved = nil
	}
}
