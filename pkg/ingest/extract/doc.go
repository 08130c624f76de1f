// Package extract reads documents: it tells what a file is (Detect) and turns its bytes into blocks of text (Pool).
//
// Every reader runs in a resident child process without files, network or environment of its own (ChildMain),
// because a hostile document can overflow Go's stack or exhaust its memory, and neither can be recovered in process.
// The parent opens the file, names the reader, passes the descriptor, and treats what comes back as an attacker's data.
//
// A format has one file here and one line in the registry (registry.go).
package extract
