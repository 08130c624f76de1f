// Package bulk does one thing to many tasks: retry all that failed for a reason, withdraw those of a base. An operation is a task of the
// workflow tasks.bulk, so that it survives what every task survives, and a row of bulk_operation, which says what is asked and how
// far it is.
//
//	asked    row of bulk_operation, then its task           a row without a task is of a request that broke off: nobody sees it
//	a page   the changes of its tasks, their log, and how   in one transaction, under the claim of the operation's task: a page is
//	         far the operation is                           done once, whoever dies when
//	paused   its task is SUSPENDED; stopped: CANCELLED      what was not reached is left alone
//
// An operation looks at the tasks that were there when it was asked, in the order in which they were made. Each is judged again under
// its row's lock: one that does not fit the filter any more is skipped, with the reason.
package bulk
