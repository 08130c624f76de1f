//go:build !race

package labserver

// watched is whether the race detector watches this program.
const watched = false
