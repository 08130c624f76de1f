//go:build !race

package extract

// memoryFactor multiplies a child's memory limits: 1, but under the race detector.
const memoryFactor = 1
