//go:build !race

package sandbox

// MemoryFactor multiplies a child's memory limits: 1, but under the race detector.
const MemoryFactor = 1
