package labserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/pkg/pause"
)

const (
	loopback = "127.0.0.1"
	// Ports of the lab lie below the kernel's range for outgoing connections (32768 and up),
	// so that nobody takes one while its server is being restarted.
	portFrom, portTo = 26000, 32000
	tempPrefix       = "millweir-lab-"

	memory     = "/dev/shm"
	memoryRoom = 8 << 30 // what it must have: several packages are tested at once, and a server of each kind takes up to 400 MB
	tmpfs      = 0x01021994
)

// tempAtStart is the temp folder as the process was told, whatever Main tells its tests.
var tempAtStart = os.TempDir()

// held keeps locks for the life of the process: the kernel lets them go when it ends.
var held struct {
	sync.Mutex
	files []*os.File
	dirs  []string
}

// memoryDir makes a folder in memory for the files of this process; "" when there is no room or no program could be started there.
func memoryDir() (string, error) {
	const noExec = 8 // ST_NOEXEC
	var st syscall.Statfs_t
	err := syscall.Statfs(memory, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("room of %s: %w", memory, err)
	}
	if st.Type != tmpfs || st.Flags&noExec != 0 || st.Bavail*uint64(st.Bsize) < memoryRoom || available() < memoryRoom {
		return "", nil
	}
	return tempDirIn(memory, "test")
}

// available is how much memory the system can still give, in bytes; 0 if it does not say.
func available() (n uint64) {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &n); err == nil {
			return n << 10
		}
	}
	return 0
}

// tempDir makes a folder that the system users can reach, locked by this process, and removes those of dead processes.
func tempDir(kind string) (string, error) { return tempDirIn(reachableTemp(), kind) }

func tempDirIn(base, kind string) (string, error) {
	sweepTemp(base)
	dir, err := os.MkdirTemp(base, "millweir-new-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := lockFile(filepath.Join(dir, ".lock"), syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	// Named for the sweep only now that it is locked.
	final := filepath.Join(base, tempPrefix+kind+"-"+strings.TrimPrefix(filepath.Base(dir), "millweir-new-"))
	if err := os.Rename(dir, final); err != nil {
		return "", err
	}
	held.Lock()
	defer held.Unlock()
	held.files, held.dirs = append(held.files, lock), append(held.dirs, final)
	return final, nil
}

// sweepTemp removes the folders whose process is gone.
func sweepTemp(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, tempPrefix+"*"))
	for _, d := range dirs {
		if f, err := lockFile(filepath.Join(d, ".lock"), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			_ = os.RemoveAll(d) // the next run tries again
			_ = f.Close()
		}
	}
}

// reachableTemp is the temp folder if other users can enter it, else /var/tmp.
func reachableTemp() string {
	base, err := filepath.Abs(tempAtStart)
	if err != nil {
		return "/var/tmp"
	}
	for d := base; d != "/"; d = filepath.Dir(d) {
		if st, err := os.Stat(d); err != nil || st.Mode().Perm()&0o001 == 0 {
			return "/var/tmp"
		}
	}
	return base
}

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// ReservePorts picks n consecutive free ports of loopback, returns the first and keeps other test processes from picking any while we live.
func ReservePorts(n int) (int, error) {
	for range 500 {
		first := portFrom + rand.IntN(portTo-portFrom-n+1)
		if err := holdPorts(first, n); err == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports between %d and %d", n, portFrom, portTo)
}

// holdPorts reserves n ports from one on, or none of them.
func holdPorts(first, n int) error {
	dir, err := installed.InCache("ports") // one for all processes: their temp folders differ
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var locks []*os.File
	for port := first; port < first+n; port++ {
		lock, err := lockFile(filepath.Join(dir, strconv.Itoa(port)), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			locks = append(locks, lock)
			err = portFree(port)
		}
		if err != nil {
			for _, l := range locks {
				_ = l.Close() // it gives the lock back
			}
			return err
		}
	}
	held.Lock()
	defer held.Unlock()
	held.files = append(held.files, locks...)
	return nil
}

// awaitPort waits a moment for a port that somebody is letting go: a killed server's process looks gone before its last
// thread has closed the socket, and a child that is just being forked holds our own probe's socket until its exec.
func awaitPort(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, portTimeout)
	defer cancel()
	for waited := true; ; waited = pause.For(ctx, pollInterval) {
		if err := portFree(port); err == nil || !waited { // a last look when the time is over: this process may have stood still
			return err
		}
	}
}

func portFree(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	return l.Close()
}

// template copies the cached tree "name" to dst, or makes it at dst with build and caches it then.
// Processes that come at the same time wait for the first one.
func template(ctx context.Context, name, dst string, build func(ctx context.Context, dst string) error) error {
	src, err := installed.InCache(filepath.Join("templates", name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(src), 0o755); err != nil {
		return err
	}
	lock, err := lockFile(src+".lock", syscall.LOCK_EX)
	if err != nil {
		return err
	}
	_, err = os.Stat(src)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(makeTemplate(ctx, src, dst, build), lock.Close())
		return err
	}
	if err := errors.Join(err, lock.Close()); err != nil {
		return err
	}
	return copyTree(src, dst)
}

func makeTemplate(ctx context.Context, src, dst string, build func(ctx context.Context, dst string) error) error {
	if err := build(ctx, dst); err != nil {
		return err
	}
	part := src + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := copyTree(dst, part); err != nil {
		return err
	}
	return os.Rename(part, src)
}

// copyTree copies folders and regular files; the copy belongs to us, modes are kept.
func copyTree(src, dst string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return os.MkdirAll(to, info.Mode().Perm()|0o700)
		case d.Type().IsRegular():
			return copyFile(path, to, info.Mode().Perm())
		default:
			return nil // sockets and pipes of a stopped server
		}
	})
}

func copyFile(src, dst string, mode fs.FileMode) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
