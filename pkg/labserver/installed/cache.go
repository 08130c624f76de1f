// Package installed finds the programs of servers, browsers and interpreters that tests start, and knows their versions and
// what installs them.
package installed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrMissing is wrapped when a program is not installed; the text says what installs it.
var ErrMissing = errors.New("server program is missing")

// cacheDir is where things live that are costly to make and the same for every run: downloads and data templates.
// MILLWEIR_CACHE overrides the default, ~/.cache/millweir.
func cacheDir() (string, error) {
	if dir := os.Getenv("MILLWEIR_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache folder (set MILLWEIR_CACHE): %w", err)
	}
	return filepath.Join(dir, "millweir"), nil
}

// InCache is the path of something there.
func InCache(name string) (string, error) {
	dir, err := cacheDir()
	return filepath.Join(dir, name), err
}
