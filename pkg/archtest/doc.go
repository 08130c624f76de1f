// Package archtest holds the tests that keep the house in order: which package may import which (rooms.go),
// which library has one home (homes in rooms.go), what never gets into a binary, and the floors below which
// a dependency has known holes (floors_test.go).
//
// A new package needs one line in rooms.go; the test says so and names it.
package archtest
