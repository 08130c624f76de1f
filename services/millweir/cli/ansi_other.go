//go:build !windows

package cli

import "os"

// ansi reports whether a terminal takes the codes of colours and of redrawing: all do.
func ansi(*os.File) bool { return true }
