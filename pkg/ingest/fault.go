package ingest

import (
	"errors"

	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/tasks"
)

// ErrUploadExpired says that the received copy is gone before it could be accepted. The sweeper removes a file without a row after
// a day, and a request that stood still for so long may have lost its copy.
var ErrUploadExpired = errors.New("the received file is gone")

// ErrProcess marks what an extractor could not do for want of the process's or the machine's resources.
var ErrProcess = taskrun.ErrProcess

// ErrElsewhere marks what an extractor cannot do because its program lacks the part that others have.
var ErrElsewhere = taskrun.ErrElsewhere

// ErrNoResources says that this process lacks what it needs for an upload: descriptors, memory, or the right to its own folder.
var ErrNoResources = errors.New("the process lacks resources")

// ErrFolder says that this process does not see the upload folder that belongs to its database (design D20):
// a file that is missing there is not missing.
var ErrFolder = errors.New("the upload folder is not the one of this database")

// Splits reports whether a batch of a group commit that failed so is worth trying one by one.
func Splits(err error) bool { return tasks.Splits(err) }
