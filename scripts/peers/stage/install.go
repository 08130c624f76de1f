package stage

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The systems that are not Go, and what they need, at fixed versions.
var (
	//go:embed foreign/bullmq.js
	bullmqProgram []byte
	//go:embed foreign/package.json
	bullmqPackages []byte
	//go:embed foreign/taskiq_peer.py
	taskiqProgram []byte
	//go:embed foreign/requirements.txt
	taskiqPackages []byte
	//go:embed foreign/faststream_peer.py
	faststreamProgram []byte
	//go:embed foreign/faststream.txt
	faststreamPackages []byte
)

// InstallBullMQ installs BullMQ below dir by npm, unless it is there, and returns its command line.
func InstallBullMQ(ctx context.Context, dir string) ([]string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%w: install nodejs and npm", err)
	}
	dir = filepath.Join(dir, "bullmq")
	err = install(dir, "package.json", bullmqPackages, func() error {
		return execute(ctx, dir, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	})
	if err != nil {
		return nil, err
	}
	program := filepath.Join(dir, "bullmq.js")
	return []string{node, program}, os.WriteFile(program, bullmqProgram, 0o644)
}

// InstallTaskiq installs taskiq below dir by pip, unless it is there, and returns its command line.
func InstallTaskiq(ctx context.Context, dir string) ([]string, error) {
	return installPython(ctx, filepath.Join(dir, "taskiq"), "taskiq_peer.py", taskiqProgram, taskiqPackages)
}

// InstallFastStream does so with FastStream; the two want different versions of the same client.
func InstallFastStream(ctx context.Context, dir string) ([]string, error) {
	return installPython(ctx, filepath.Join(dir, "faststream"), "faststream_peer.py", faststreamProgram, faststreamPackages)
}

// installPython makes a virtual environment in dir, and returns the program's command line in it.
func installPython(ctx context.Context, dir, name string, program, packages []byte) ([]string, error) {
	err := install(dir, "requirements.txt", packages, func() error {
		if err := execute(ctx, dir, "python3", "-m", "venv", filepath.Join(dir, "venv")); err != nil {
			return err
		}
		return execute(ctx, dir, filepath.Join(dir, "venv", "bin", "pip"), "install", "-q", "--disable-pip-version-check", "-r", "requirements.txt")
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	return []string{filepath.Join(dir, "venv", "bin", "python"), path}, os.WriteFile(path, program, 0o644)
}

// install has the packages of a list installed in dir, unless that very list was installed there.
func install(dir, name string, list []byte, build func() error) error {
	complete := filepath.Join(dir, ".complete")
	if done, err := os.ReadFile(complete); err == nil && string(done) == string(list) {
		return nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name), list, 0o644); err != nil {
		return err
	}
	if err := build(); err != nil {
		return err
	}
	return os.WriteFile(complete, list, 0o644)
}

// execute runs an installer; its output is in the error.
func execute(ctx context.Context, dir string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out[max(0, len(out)-logTail):])))
	}
	return nil
}
