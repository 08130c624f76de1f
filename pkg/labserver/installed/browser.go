package installed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// AxeVersion is that of axe-playwright-python, a package of PyPI that carries axe-core: rules of accessibility that run in a page.
const AxeVersion = "0.1.8"

// AxeHome is the virtual environment of axe in the cache; `make deps` fills it.
func AxeHome() (string, error) { return InCache("axe-" + AxeVersion) }

// Chromium is the browser's program, of the Debian package. An error wraps ErrMissing.
func Chromium() (string, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return "", fmt.Errorf("%w: chromium (run `make deps`)", ErrMissing)
	}
	return path, nil
}

// AxeScript is the text of axe-core. An error wraps ErrMissing.
func AxeScript() (string, error) {
	home, err := AxeHome()
	if err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(home, "lib", "python*", "site-packages", "axe_playwright_python", "axe.min.js"))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: axe-core (run `make deps`: it fills %s from PyPI)", ErrMissing, home)
	}
	text, err := os.ReadFile(found[0])
	return string(text), err
}
