// Package suite puts the parts of a service together out of its settings: database, queue, vector store,
// embedder, readers and the application above them. Every service and the all-in-one are built from it,
// so that a part is chosen and checked in one place.
package suite
