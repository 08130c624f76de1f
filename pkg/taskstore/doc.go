// Package taskstore keeps tasks in MySQL, MariaDB, Postgres or SQLite: one implementation of taskstate.Store
// over database/sql, with the drivers' homes in mysql/, postgres/ and sqlite/.
//
// Every write is one transaction (design D2, D9): lock the rows in id order, which also answers the database's
// clock and the epoch; let the caller's pure functions decide; write all changes with one UPDATE whose
// predicate names what each row must still say; run the caller's own SQL; write the log with one INSERT … SELECT
// from the rows; read the instant of the UPDATE; COMMIT. The number of statements does not depend on the size of the
// batch. Rows of a batch travel as one JSON array, so statement texts are constant too.
//
// Waits of every kind (a pool's connection, a lock, the network) end with the caller's context.
// Deadlocks and lock waits are tried again. After a COMMIT without an answer the store first finds out what became
// of it: it locks the same rows, which waits for the old transaction's end, and looks for the call's id in the log.
package taskstore
