package figure

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/millweir/millweir/pkg/labserver/installed"
)

// Python returns the interpreter that `make deps` has installed Chroma for: numpy, onnxruntime and tokenizers come with it.
func Python() (string, error) {
	home, err := installed.ChromaHome()
	return filepath.Join(home, "bin", "python"), err
}

// WithPython lets f run programs of packages that are installed in a folder for it alone: PYTHONPATH in the command's environment names
// it. pip are pip's arguments.
func WithPython(ctx context.Context, pip []string, f func(dir string, command func(args ...string) *exec.Cmd) error) error {
	interpreter, err := Python()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-python-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of ours
	install := exec.CommandContext(ctx, interpreter, append([]string{"-m", "pip", "install", "-q", "--target", dir}, pip...)...)
	if said, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("install %v: %w: %s", pip, err, said)
	}
	return f(dir, func(args ...string) *exec.Cmd {
		c := exec.CommandContext(ctx, interpreter, args...)
		c.Dir, c.Env, c.Stderr = dir, append(os.Environ(), "PYTHONPATH="+dir), os.Stderr
		return c
	})
}
