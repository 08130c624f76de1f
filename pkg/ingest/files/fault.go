package files

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/millweir/millweir/pkg/ingest"
)

// What the system says when a process lacks something (design D20).
var (
	// ResourceFaults are the process's wherever they are met: it has no descriptors or memory left.
	ResourceFaults = []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}
	// SpaceFaults: a file system that the process writes to is full. One document alone may have filled it.
	SpaceFaults = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT}
	// FolderFaults keep the process from its folders, or one file from being read.
	FolderFaults = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EIO, syscall.ESTALE, syscall.ENOTCONN, syscall.ENODEV}
)

// AnyOf reports whether one of the system's errors is in err's chain.
func AnyOf(err error, errnos []syscall.Errno) bool {
	return slices.ContainsFunc(errnos, func(e syscall.Errno) bool { return errors.Is(err, e) })
}

// ResourceError is err, and also ErrNoResources when a fault of the process itself keeps an upload from being taken in.
func ResourceError(err error) error {
	if AnyOf(err, ResourceFaults) || AnyOf(err, FolderFaults) {
		return fmt.Errorf("%w: %w", ingest.ErrNoResources, err)
	}
	return SpaceError(err)
}

// SpaceError turns a full disk or quota into ErrDiskFull.
func SpaceError(err error) error {
	if AnyOf(err, SpaceFaults) {
		return fmt.Errorf("%w: %w", ingest.ErrDiskFull, err)
	}
	return err
}
