// Package dependant builds programs that import our modules as somebody else's project does: outside the workspace, by a
// version, from a module proxy. The proxy is a tree of files made of the working tree, so that no tag is needed.
package dependant

import (
	"archive/zip"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	prefix  = "github.com/millweir/millweir/"
	version = "v0.1.0" // as if it were tagged
)

// programs are the modules that can be imported, each with a program that uses it.
var programs = map[string]string{
	"pkg/streammq": `package main

import (
	"fmt"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq"
)

func main() {
	_, err := streammq.New(rueidis.Client(nil), streammq.NewDefaultConfig())
	fmt.Println("used", err == nil)
}
`,
	"pkg/taskstate": `package main

import (
	"fmt"

	"github.com/millweir/millweir/pkg/taskstate"
)

func main() { fmt.Println("used", taskstate.StatusDead.Terminal()) }
`,
	"proto": `package main

import (
	"fmt"

	protobuf "google.golang.org/protobuf/proto"

	"github.com/millweir/millweir/proto"
)

func main() {
	_, err := protobuf.Marshal(&proto.TaskEnvelope{})
	fmt.Println("used", err == nil)
}
`,
	"migrations": `package main

import (
	"fmt"

	"github.com/millweir/millweir/migrations"
)

func main() {
	all, err := migrations.Load("sqlite")
	fmt.Println("used", err == nil && len(all) > 0)
}
`,
}

func TestModulesCanBeImported(t *testing.T) {
	t.Parallel()
	root := workspace(t)
	proxy := t.TempDir()
	for module := range programs {
		publish(t, root, module, proxy)
	}
	// One cache for all of them; none of ours may be left in the machine's.
	cache := t.TempDir()
	for module, source := range programs {
		t.Run(module, func(t *testing.T) {
			d := dependant{t: t, dir: t.TempDir(), proxy: proxy, cache: cache}
			d.write("main.go", source)
			d.run("go", "mod", "init", "example.com/dependant")
			d.run("go", "get", prefix+module+"@"+version)
			d.run("go", "mod", "tidy")
			d.run("go", "vet", "./...")
			require.Equal(t, "used true\n", d.run("go", "run", "."))
			for _, line := range strings.Split(d.run("go", "list", "-m", "all"), "\n") {
				other, _, _ := strings.Cut(line, " ")
				require.False(t, strings.HasPrefix(other, prefix) && other != prefix+module, "%s brings %s with it", module, line)
				require.NotContains(t, line, "miniredis", "%s brings a server with it", module)
			}
		})
	}
}

// A released go.mod says all: replacements count in the main module only, and nobody finds a v0.0.0.
func TestModulesCanBeTagged(t *testing.T) {
	t.Parallel()
	root := workspace(t)
	for module := range programs {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(module), "go.mod"))
		require.NoError(t, err)
		require.NotRegexp(t, regexp.MustCompile(`(?m)\breplace\b|\bexclude\b|v0\.0\.0\s*$|v0\.0\.0 //`), string(text), "%s/go.mod", module)
		require.Contains(t, string(text), "module "+prefix+module+"\n")
	}
}

// workspace is the folder with go.work.
func workspace(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOWORK").Output()
	require.NoError(t, err)
	file := strings.TrimSpace(string(out))
	require.Equal(t, "go.work", filepath.Base(file))
	return filepath.Dir(file)
}

// publish puts a module on the proxy, without the modules inside it.
func publish(t *testing.T, root, module, proxy string) {
	t.Helper()
	from := filepath.Join(root, filepath.FromSlash(module))
	to := filepath.Join(proxy, filepath.FromSlash(prefix+module), "@v")
	require.NoError(t, os.MkdirAll(to, 0o755))
	mod, err := os.ReadFile(filepath.Join(from, "go.mod"))
	require.NoError(t, err)
	info, err := json.Marshal(map[string]string{"Version": version})
	require.NoError(t, err)
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".info": info, version + ".mod": mod} {
		require.NoError(t, os.WriteFile(filepath.Join(to, name), content, 0o644))
	}
	archive, err := os.Create(filepath.Join(to, version+".zip"))
	require.NoError(t, err)
	w := zip.NewWriter(archive)
	require.NoError(t, filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != from {
				return filepath.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := w.Create(prefix + module + "@" + version + "/" + filepath.ToSlash(name))
		if err == nil {
			_, err = file.Write(content)
		}
		return err
	}))
	require.NoError(t, w.Close())
	require.NoError(t, archive.Close())
}

// dependant is a project of somebody else.
type dependant struct {
	t                 *testing.T
	dir, proxy, cache string
}

func (d dependant) write(name, content string) {
	d.t.Helper()
	require.NoError(d.t, os.WriteFile(filepath.Join(d.dir, name), []byte(content), 0o644))
}

// run runs a command in the project. Modules of others come from this machine's cache, or from where it gets them.
func (d dependant) run(name string, args ...string) string {
	d.t.Helper()
	machine := func(key string) string {
		out, err := exec.CommandContext(d.t.Context(), "go", "env", key).Output()
		require.NoError(d.t, err)
		return strings.TrimSpace(string(out))
	}
	proxies := []string{"file://" + d.proxy, "file://" + machine("GOMODCACHE") + "/cache/download", machine("GOPROXY")}
	cmd := exec.CommandContext(d.t.Context(), name, args...)
	cmd.Dir = d.dir
	// What others' modules hold is compared with the sums of the workspace, when that is built.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-trimpath -modcacherw", "GOTOOLCHAIN=local", "GOSUMDB=off",
		"GOPRIVATE=", "GONOPROXY=", "GOMODCACHE="+d.cache, "GOPROXY="+strings.Join(proxies, ","))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(d.t, err, "%s %s:\n%s", name, strings.Join(args, " "), stderr.String())
	return string(out)
}
