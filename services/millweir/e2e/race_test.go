//go:build race

package e2e

// memoryFactor is what the race detector multiplies memory with.
const memoryFactor = 16
