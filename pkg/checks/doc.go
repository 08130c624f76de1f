// Package checks lets operators check the whole installation by package fsck, and mend it, through the services.
//
// A check is a task of the workflow installation.check. So its durability, lease, takeover, retry, cancellation, log and
// explanation are those of every task, any worker runs it, and there is no table and no scheduler of its own (design D29).
//
//	asked    the task's row and the audit row, in one transaction      without the commit nobody has asked
//	running  the claim of a worker; what is found is in its memory     a worker that dies is replaced: the check begins anew
//	mending  each mend is a transaction, or a call of the vector       what a dead worker mended stays; the next attempt
//	         store, that is harmless when it is repeated               checks again and mends the rest
//	ended    the report is the task's result, in the transaction       without the commit the check is repeated
//	         that ends the task
package checks
