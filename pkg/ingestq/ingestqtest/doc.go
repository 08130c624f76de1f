// Package ingestqtest is the conformance suite of the queue port: every implementation of ingestq.PendingQueue passes it.
package ingestqtest
