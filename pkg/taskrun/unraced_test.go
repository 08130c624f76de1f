//go:build !race

package taskrun_test

// raced: times can be judged.
const raced = false
