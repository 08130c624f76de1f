package embedded

import (
	"errors"
	"os"
	"slices"
	"sync"
)

// lockDir takes the directory for this process; the kernel gives it back when the process ends, however it ends. A record lock
// belongs to the process alone: with flock, a child that is between fork and exec would still have it. But it hinders nobody in
// the same process, and goes when any descriptor of its file is closed; so a process knows what it has open.
func lockDir(root *os.Root) (lock *os.File, dir os.FileInfo, err error) {
	if dir, err = root.Stat("."); err != nil {
		return nil, nil, err
	}
	taken.Lock()
	defer taken.Unlock()
	if taken.index(dir) >= 0 {
		return nil, nil, ErrInUse
	}
	if lock, err = root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, nil, err
	}
	if err := lockFile(lock); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	taken.dirs = append(taken.dirs, dir)
	return lock, dir, nil
}

// unlockDir gives the directory back.
func unlockDir(lock *os.File, dir os.FileInfo) error {
	taken.Lock()
	defer taken.Unlock()
	if at := taken.index(dir); at >= 0 {
		taken.dirs = slices.Delete(taken.dirs, at, at+1)
	}
	return lock.Close()
}

// taken are the directories that this process has open, by whatever path.
var taken openDirs

type openDirs struct {
	sync.Mutex
	dirs []os.FileInfo
}

// index is the place of a directory among those that are open; -1: it is not.
func (o *openDirs) index(dir os.FileInfo) int {
	return slices.IndexFunc(o.dirs, func(d os.FileInfo) bool { return os.SameFile(d, dir) })
}
