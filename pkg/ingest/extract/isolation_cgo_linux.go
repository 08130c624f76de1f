//go:build cgo

package extract

// ownProcesses is empty in programs that link C (the project's tests, not its binaries): landlock is then put
// on all threads by the numbers that /proc shows, and inside a namespace of its own a child has other numbers
// than that.
const ownProcesses = 0
