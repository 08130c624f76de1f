// Package history judges the log of tasks (ingest_task_transition) by rules I1–I11 of deploy/docs/rules.md.
//
// Trail is what has to be remembered of one task; its Step judges one more transition. The model checker, the random
// tests and `millweir fsck --history` all use it. Checker carries a Trail for each open task and counts, for every
// rule, how many events it judged, so that a rule that saw nothing is not mistaken for one that was kept.
//
// The table of legal moves and the formulas are written here a second time on purpose: a checker that asked
// taskstate would agree with its mistakes.
//
// What a log cannot say: a heartbeat moves a lease without a transition. So I6 compares a takeover with the lease
// that its predecessor's claim recorded: a takeover before that is always wrong, one after it may have come before a
// lease that was renewed since. I8 and I9 need the settings that were in force; without Options.Policy, or before
// Options.Since, they judge what holds for every setting.
//
// The package imports the standard library and taskstate only.
package history
