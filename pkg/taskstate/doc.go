// Package taskstate holds the life of a task as pure functions over values: which change of state
// is legal, when a task is due, who holds it, and what a claim, a success, a failure or an
// operator's act does to it (contract §2, design D2–D7).
//
// Functions take the task as its row says it is, and the database's moment, and return a Decision.
// A Store locks the rows, asks for decisions and writes them; it holds no rule of its own.
// The package imports the standard library only.
package taskstate
