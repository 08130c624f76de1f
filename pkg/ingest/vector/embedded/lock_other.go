//go:build !unix

package embedded

import "os"

// lockFile does nothing here: the operator must not start two processes on one directory.
func lockFile(*os.File) error { return nil }

func unlockFile(*os.File) error { return nil }
