// Package e2e holds tests only: they start the real programs as processes of their own and use them over HTTP, as a
// user does. The test binary itself runs as the all-in-one, as a service or as an extractor's child (see TestMain),
// so that the race detector watches the product and every process has an environment and a memory of its own.
package e2e
