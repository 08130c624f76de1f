//go:build !race

package e2e

// memoryFactor is 1 without the race detector.
const memoryFactor = 1
