// Package archtest holds the tests that keep the house in order: which package may import which (rooms.go),
// which library has one home (homes in rooms.go), what never gets into a binary, and the floors below which
// a dependency has known holes (floors_test.go).
//
// It also compares the pages of deploy/docs with the source. The promises name checks that exist
// (promises_test.go). Each rule has its tests, and each test with an id its rule (rules_test.go). Each citation of a
// decision, a rule or a section of the contract resolves (citations_test.go), and so does each link (pages_test.go).
//
// A new package needs one line in rooms.go; the test says so and names it.
package archtest
