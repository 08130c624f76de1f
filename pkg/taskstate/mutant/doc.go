// Package mutant seeds bugs on purpose, to prove that the checks find them (deploy/docs/mutants.md).
//
// Without the build tag mutant, Is is the constant false and every seeded bug is compiled away.
// With it the variable MILLWEIR_MUTANT names the one bug that this run has: m1, m2 …
// A place that can be wrong says so in one line: `if mutant.Is("m10") { … }`; a statement in a .sql file
// ends the line that the bug drops with `-- @unless m1`.
package mutant
