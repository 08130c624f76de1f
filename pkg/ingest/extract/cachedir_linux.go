package extract

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// cacheFolder makes the folder of the compiled PDF reader. What lies in it is run as code, so a folder that
// others can write to is refused, and without a home a private temporary one is made (own = true).
func cacheFolder(configured string) (dir string, own bool, err error) {
	if configured != "" {
		return configured, false, privateFolder(configured)
	}
	if home, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(home, "millweir", "pdfium")
		if privateFolder(dir) == nil {
			return dir, false, nil
		}
	}
	return temporaryFolder()
}

// temporaryFolder makes one for the pool alone.
func temporaryFolder() (dir string, own bool, err error) {
	dir, err = os.MkdirTemp("", "millweir-pdfium-")
	if err != nil {
		return "", false, fmt.Errorf("EXTRACT_CACHE_DIR: make a folder for the compiled pdf reader: %w", err)
	}
	return dir, true, nil
}

// privateFolder makes a folder, or checks that an existing one is ours alone to write.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("EXTRACT_CACHE_DIR: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("EXTRACT_CACHE_DIR: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && int(owner.Uid) != os.Geteuid() && owner.Uid != 0:
		return fmt.Errorf("EXTRACT_CACHE_DIR: %s belongs to another user, who could change the program in it", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("EXTRACT_CACHE_DIR: %s can be written by other users (mode %o)", dir, info.Mode().Perm())
	}
	return nil
}
