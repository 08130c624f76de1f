// Package extract reads documents: a Pool turns their bytes into blocks of text. Package detect tells what a
// file is.
//
// Every reader runs in a resident child process without files, network or environment of its own (package
// child), because a hostile document can overflow Go's stack or exhaust its memory, and neither can be
// recovered in process. The parent opens the file, names the reader, passes the descriptor, and treats what
// comes back as an attacker's data.
//
// What stands between a child that a document took over and the rest, outermost first:
//   - namespaces of its own for users, network, IPC, mounts and processes, where the system gives them (process.go);
//   - limits of the kernel: no file grows, no core, few descriptors, memory (package sandbox);
//   - landlock without any rule: no file by name, no port, no signal to others;
//   - a list of system calls: no new descriptor, process or code, and no way to loosen any of this (sandbox/seccomp_linux.go);
//   - the parent, which counts what comes back and kills over time, memory or threads (jobrun.go, watchdog.go).
//
// EXTRACT_SANDBOX=require refuses to read without landlock and the list of calls; the log's "sandbox ready"
// and ingest_extract_sandbox_layer say what is in force.
//
// Packages, from below: document (input, sink, failures) · charset, archive · detect · one for each format:
// pdf, docx, html, markdown, plaintext · formats (all of them) · frame (the protocol) and sandbox · child ·
// extract. A new format is a package here and a line in formats.
package extract
