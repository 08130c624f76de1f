//go:build race

package taskrun_test

// raced: the race detector slows everything down many times.
const raced = true
