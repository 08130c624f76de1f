package extract

import (
	"fmt"
	"os"
	"syscall"

	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// ownProgram is the file of the running program.
func ownProgram() (string, error) { return os.Executable() }

// plainAttr makes a child the head of its own group. It sees by itself that its parent has gone (child.watchSelf).
func plainAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// isolatedAttr returns an error: the system has no namespaces.
func isolatedAttr() (*syscall.SysProcAttr, error) {
	return nil, fmt.Errorf("namespaces: %w", sandbox.ErrNotHere)
}

// limitMemory does nothing: the system bounds no other process.
func limitMemory(int, int) error { return nil }
