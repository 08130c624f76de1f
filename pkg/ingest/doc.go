// Package ingest is the application: it takes a document in, works it through
// extract → split → embed → index, and makes one version of it visible in one step.
//
// It holds the rules and the ports (Extractor, Splitter, Embedder, VectorStore, Store);
// every library lives in a package of its own below it.
package ingest
