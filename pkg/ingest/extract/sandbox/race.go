//go:build race

package sandbox

// MemoryFactor makes room for the race detector's shadow of all memory; limits are not what it tests.
const MemoryFactor = 16
