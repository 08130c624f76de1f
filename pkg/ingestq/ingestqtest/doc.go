// Package ingestqtest is the conformance suite of the queue port: every implementation of ingestq.Consumer passes it.
package ingestqtest
