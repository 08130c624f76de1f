//go:build race

package extract

// memoryFactor makes room for the race detector's shadow of all memory; limits are not what it tests.
const memoryFactor = 16
