package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
)

// redisFleet is a fleet of one Redis in a folder of its own; its port is the process's setting, so these tests are not parallel.
func redisFleet(t *testing.T) (dir string, call func(args ...string) (string, error)) {
	t.Helper()
	probe := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	if err := probe.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MILLWEIR_REDIS_PORT", fmt.Sprint(probe.Port))
	t.Setenv("SERVICES", "redis")
	dir = filepath.Join(t.TempDir(), ".run")
	if os.Geteuid() == 0 { // else the data would go outside, which has its own test
		for _, d := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	call = func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append(args, "-dir", dir), &out)
		return out.String(), err
	}
	t.Cleanup(func() {
		_ = run(context.Background(), []string{"down", "-dir", dir, "-wipe"}, &bytes.Buffer{})
		for _, pid := range processesIn(dir) {
			_ = exec.Command("kill", "-9", pid).Run()
		}
	})
	return dir, call
}

func TestUpIsIdempotentAndDownKeepsData(t *testing.T) {
	dir, call := redisFleet(t)
	out, err := call("up")
	if err != nil || !strings.Contains(out, "up    redis") {
		t.Fatalf("up: %v\n%s", err, out)
	}
	again, err := call("up")
	if err != nil || !strings.Contains(again, "(already)") {
		t.Fatalf("up again: %v\n%s", err, again)
	}
	if out, err := call("status"); err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	env, err := os.ReadFile(filepath.Join(dir, "services.env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"REDIS_URL='redis://127.0.0.1:", "VECTOR_STORE='embedded'", "AUTH_MODE='none'", "INGEST_QUEUE='redis'", "UPLOAD_DIR='" + dir} {
		if !strings.Contains(string(env), want) {
			t.Errorf("services.env lacks %q:\n%s", want, env)
		}
	}
	if strings.Contains(string(env), "OPERATOR_ADDR") {
		t.Error("services.env must not set OPERATOR_ADDR")
	}
	if out, err := call("down"); err != nil || !strings.Contains(out, "down  redis") {
		t.Fatalf("down: %v\n%s", err, out)
	}
	if _, err := call("status"); err == nil {
		t.Error("status of a stopped server must fail")
	}
	if _, err := os.Stat(filepath.Join(dir, "redis", "data")); err != nil {
		t.Errorf("down must keep the data: %v", err)
	}
	if out, err := call("down", "-wipe"); err != nil {
		t.Fatalf("wipe: %v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "redis")); !os.IsNotExist(err) {
		t.Errorf("wipe must remove the data: %v", err)
	}
}

func TestRemovedFolderIsExplained(t *testing.T) {
	dir, call := redisFleet(t)
	if out, err := call("up"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	pids := processesIn(dir)
	if len(pids) != 1 {
		t.Fatalf("processes in %s: got %v, want one", dir, pids)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"up", "down"} {
		_, err := call(verb)
		if err == nil || !strings.Contains(err.Error(), "kill "+pids[0]) {
			t.Errorf("%s after the folder was removed: got %v, want a sentence with kill %s", verb, err, pids[0])
		}
	}
}

func TestDataGoesWhereTheServersMayEnter(t *testing.T) {
	dir, call := redisFleet(t)
	switch root := os.Geteuid() == 0; {
	case !root && os.Getenv("CI") != "":
		t.Fatal("only root runs servers as other users: run the checks as root")
	case !root:
		t.Skip("only root runs servers as other users")
	}
	if err := os.Chmod(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := call("up"); err != nil {
		t.Fatalf("up: %v\n%s", err, out)
	}
	target, err := os.Readlink(filepath.Join(dir, "redis"))
	if err != nil || !strings.HasPrefix(target, "/var/tmp/millweir-run-") {
		t.Errorf("data folder: got %q (%v), want a link to /var/tmp", target, err)
	}
	if out, err := call("down", "-wipe"); err != nil {
		t.Fatalf("wipe: %v\n%s", err, out)
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Errorf("wipe must remove %s: %v", target, err)
	}
}

func TestForeignPortIsExplained(t *testing.T) {
	_, call := redisFleet(t)
	stranger := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	t.Setenv("MILLWEIR_REDIS_PORT", fmt.Sprint(stranger.Port))
	_, err := call("up")
	if err == nil || !strings.Contains(err.Error(), "MILLWEIR_REDIS_PORT") {
		t.Errorf("up on a taken port: got %v, want the variable's name", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := stranger.Ready(ctx); err != nil {
		t.Errorf("the stranger must be left alone: %v", err)
	}
}

func TestBadCalls(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"sideways"}, {"up", "-frob"}, {"up", "extra"}} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("services %v: no error", args)
		}
	}
	if _, err := newFleet(t.TempDir(), "redis oracle", nil); err == nil || !strings.Contains(err.Error(), "oracle") {
		t.Errorf("unknown service: got %v", err)
	}
}

func TestInstallRunsOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "thing")
	built := 0
	for range 2 {
		if err := once(t.Context(), dir, func(context.Context) error { built++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if built != 1 {
		t.Errorf("built %d times, want 1", built)
	}
	broken := filepath.Join(t.TempDir(), "broken")
	fail := func(context.Context) error { return fmt.Errorf("network") }
	if err := once(t.Context(), broken, fail); err == nil {
		t.Error("a failed installation must be an error")
	}
	if err := once(t.Context(), broken, func(context.Context) error { return nil }); err != nil {
		t.Errorf("and the next one starts afresh: %v", err)
	}
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
