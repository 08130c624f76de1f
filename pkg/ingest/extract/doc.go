// Package extract reads documents: it tells what a file is (Detect) and turns its bytes into blocks of text (Pool).
//
// Every reader runs in a resident child process without files, network or environment of its own (ChildMain),
// because a hostile document can overflow Go's stack or exhaust its memory, and neither can be recovered in process.
// The parent opens the file, names the reader, passes the descriptor, and treats what comes back as an attacker's data.
//
// What stands between a child that a document took over and the rest, outermost first:
//   - namespaces of its own for users, network, IPC, mounts and processes, where the system gives them (process.go);
//   - limits of the kernel: no file grows, no core, few descriptors, memory (confine_linux.go);
//   - landlock without any rule: no file by name, no port, no signal to others;
//   - a list of system calls: no new descriptor, process or code, and no way to loosen any of this (seccomp_linux.go);
//   - the parent, which counts what comes back and kills over time, memory or threads (jobrun.go, watchdog.go).
//
// EXTRACT_SANDBOX=require refuses to read without landlock and the list of calls; the log's "sandbox ready" and
// ingest_extract_sandbox_layer say what is in force.
//
// A format has one file here and one line in the registry (registry.go).
package extract
