// Package lab runs the product's own binaries against real servers, breaks them, and looks at what is left.
// The drills and the benchmarks are written with it.
//
// A World is one set of servers, a fake embedding service and the processes that were started in it. It has ports and
// folders of its own, so several can live side by side, and everything in it dies with the program that made it.
// An Audit is the judge: it reads tables, streams and vectors directly and knows nothing of how they came about.
package lab
