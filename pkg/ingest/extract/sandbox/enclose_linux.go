package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Rights that Landlock handles, by the version of it in which they came.
const (
	filesABI1, filesABI2, filesABI3, filesABI5 = 1<<13 - 1, 1<<14 - 1, 1<<15 - 1, 1<<16 - 1
	portsABI4                                  = 1<<2 - 1
	scopesABI6                                 = 1<<2 - 1
)

// loaderCache tells the system's loader where libraries are.
const loaderCache = "/etc/ld.so.cache"

// Enclose starts this program anew with these arguments, confined by landlock to reading the files that it has mapped by now: itself and
// its libraries. It returns only if that fails. A program that has loaded a C library cannot put landlock on its threads by itself: Go
// does not know all of them. What is put on one thread before exec holds for all that the new program will ever have.
func Enclose(argv []string) error {
	abi, err := llsys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return fmt.Errorf("landlock: %w", errors.Join(errors.New("the kernel has none"), err))
	}
	ruleset, err := rules(abi)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	runtime.LockOSThread() // the restriction is this thread's, and so is exec
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := llsys.LandlockRestrictSelf(ruleset, 0); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	_ = unix.Close(ruleset)
	return fmt.Errorf("start anew: %w", unix.Exec("/proc/self/exe", argv, []string{}))
}

// rules are the descriptor of rules that allow to read and run what is mapped, and nothing else.
func rules(abi int) (fd int, err error) {
	files, err := mapped()
	if err != nil {
		return 0, err
	}
	if fd, err = llsys.LandlockCreateRuleset(new(rights(abi)), 0); err != nil {
		return 0, fmt.Errorf("make the rules: %w", err)
	}
	for _, name := range append(files, loaderCache) {
		if err := allow(fd, name); err != nil && name != loaderCache {
			_ = unix.Close(fd)
			return 0, fmt.Errorf("allow %s: %w", name, err)
		}
	}
	return fd, nil
}

// rights are all that a version of landlock can take away.
func rights(abi int) llsys.RulesetAttr {
	r := llsys.RulesetAttr{HandledAccessFS: filesABI1}
	for _, since := range []struct {
		abi int
		set func()
	}{
		{2, func() { r.HandledAccessFS = filesABI2 }},
		{3, func() { r.HandledAccessFS = filesABI3 }},
		{4, func() { r.HandledAccessNet = portsABI4 }},
		{5, func() { r.HandledAccessFS = filesABI5 }},
		{6, func() { r.Scoped = scopesABI6 }},
	} {
		if abi >= since.abi {
			since.set()
		}
	}
	return r
}

// allow adds the right to read and run a file.
func allow(ruleset int, name string) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // a path only
	return llsys.LandlockAddPathBeneathRule(ruleset, &llsys.PathBeneathAttr{AllowedAccess: llsys.AccessFSReadFile | llsys.AccessFSExecute, ParentFd: fd}, 0)
}

// mapped returns the files that this process has mapped: its program and its libraries.
func mapped() (files []string, err error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer maps.Close() //nolint:errcheck // only read
	seen := map[string]bool{}
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		if at := strings.IndexByte(lines.Text(), '/'); at >= 0 && !seen[lines.Text()[at:]] {
			seen[lines.Text()[at:]] = true
			files = append(files, lines.Text()[at:])
		}
	}
	return files, nil
}

// enclosed reports landlock's version if Enclose has confined this process: a folder that everybody may read cannot be.
func enclosed() (abi int, err error) {
	folder, err := os.Open("/")
	if err == nil {
		_, err = folder.ReadDir(1)
		_ = folder.Close()
	}
	if !errors.Is(err, unix.EACCES) {
		return 0, errors.Join(errors.New("the process was not started anew under it"), err)
	}
	return llsys.LandlockGetABIVersion()
}
