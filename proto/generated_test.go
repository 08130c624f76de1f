package proto

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// protocLine differs between versions of protoc that generate the same code.
var protocLine = regexp.MustCompile(`(?m)^// \tprotoc .*$`)

// TestGeneratedCodeIsCurrent generates task_envelope.pb.go anew with the plugin of this module's own protobuf version.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	t.Parallel()
	protoc, err := exec.LookPath("protoc")
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal("protoc is missing: make deps installs it")
	case err != nil:
		t.Skip("protoc is not installed (apt-get install protobuf-compiler): generated code not compared")
	}
	dir := t.TempDir()
	plugin := filepath.Join(dir, "protoc-gen-go")
	run(t, "go", "build", "-o", plugin, "google.golang.org/protobuf/cmd/protoc-gen-go")
	run(t, protoc, "--plugin=protoc-gen-go="+plugin, "--go_out="+dir, "--go_opt=paths=source_relative", "task_envelope.proto")
	got, err := os.ReadFile(filepath.Join(dir, "task_envelope.pb.go"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("task_envelope.pb.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(protocLine.ReplaceAll(got, nil), protocLine.ReplaceAll(want, nil)) {
		t.Error("task_envelope.pb.go is not what task_envelope.proto gives: go generate ./proto")
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
