package chart

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// read decodes a YAML file of the project; anchors and merges are resolved.
func read(t *testing.T, path string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, into), path)
}

// binaries are all that has an image: the services and the command line.
func binaries() []string {
	return slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(known)), commandLine)))
}

// TestSkaffold: one artifact per binary out of the one Dockerfile, and each lands in its own Deployment.
func TestSkaffold(t *testing.T) {
	var s struct {
		Build struct {
			Artifacts []struct {
				Image, Context string
				Docker         struct {
					Dockerfile string
					BuildArgs  map[string]string
				}
			}
		}
		Deploy struct {
			Helm struct {
				Releases []struct {
					Name, ChartPath              string
					SetValues, SetValueTemplates map[string]string
				}
			}
		}
	}
	read(t, "skaffold.yaml", &s)
	variables := map[string]string{} // of setValueTemplates, by their names: other signs than letters and digits are _
	var built []string
	for _, a := range s.Build.Artifacts {
		built = append(built, a.Docker.BuildArgs["SERVICE"])
		require.FileExists(t, filepath.Join(root, a.Context, a.Docker.Dockerfile))
		require.Equal(t, "millweir/"+a.Docker.BuildArgs["SERVICE"], a.Image)
		variables["{{.IMAGE_FULLY_QUALIFIED_"+strings.NewReplacer("/", "_", "-", "_").Replace(a.Image)+"}}"] = a.Image + ":dev"
	}
	require.ElementsMatch(t, binaries(), built)

	require.Len(t, s.Deploy.Helm.Releases, 1)
	release := s.Deploy.Helm.Releases[0]
	require.Equal(t, folder, filepath.Join(root, release.ChartPath))
	var set []string
	for name, value := range release.SetValues {
		set = append(set, name+"="+value)
	}
	for name, template := range release.SetValueTemplates {
		require.Contains(t, variables, template, name)
		set = append(set, name+"="+variables[template])
	}
	for service := range known {
		set = append(set, "services."+service+".enabled=true")
	}
	images := map[string]string{}
	for _, obj := range objects(t, release.Name, "", set...) {
		if pod := podOf(obj); pod != nil {
			images[pod.Spec.Containers[0].Name] = pod.Spec.Containers[0].Image
		}
	}
	want := map[string]string{"migrate": "millweir/millweir:dev"}
	for service := range known {
		want[service] = "millweir/" + service + ":dev"
	}
	require.Equal(t, want, images)
}

// TestDockerfile: the argument decides, the Makefile's own rule builds, and root is not the user.
func TestDockerfile(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "Dockerfile"))
	require.NoError(t, err)
	file := string(raw)
	mod, err := os.ReadFile(filepath.Join(root, "go.work"))
	require.NoError(t, err)
	version, _, _ := strings.Cut(string(mod), "\n")
	require.Contains(t, file, "\nARG GO_VERSION="+strings.TrimPrefix(version, "go ")+"\n")
	require.Contains(t, file, "\nARG SERVICE\n")
	require.Contains(t, file, `make "bin/${SERVICE}" VERSION="${VERSION}"`)
	stages := strings.Split(file, "\nFROM ")
	last := stages[len(stages)-1]
	require.True(t, strings.HasPrefix(last, "scratch\n"), "nothing but the program")
	require.Contains(t, last, "\nUSER 10001:10001\n")
	require.Contains(t, last, `ENTRYPOINT ["/service"]`)

	cmd := exec.CommandContext(t.Context(), "make", "-n", "-s", "-C", root, "image")
	plan, err := cmd.CombinedOutput()
	require.NoError(t, err, string(plan))
	for _, service := range binaries() {
		require.Contains(t, string(plan), "--build-arg SERVICE="+service+" ")
	}
}

// TestImagesHaveTheCompiledReader: the Dockerfile's step, run here: whoever reads documents fills the folder that its image names.
func TestImagesHaveTheCompiledReader(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "Dockerfile"))
	require.NoError(t, err)
	_, step, found := strings.Cut(strings.ReplaceAll(string(raw), "\\\n", ""), "RUN install -d /root-fs/cache/pdf ")
	require.True(t, found)
	step, _, _ = strings.Cut("install -d /root-fs/cache/pdf "+step, "\n")
	require.Contains(t, string(raw), "\nENV EXTRACT_CACHE_DIR=/cache/pdf\n")
	for _, service := range []string{"stream-worker", "outbox-relay"} {
		path, err := binary(service)
		require.NoError(t, err)
		dir := t.TempDir()
		script := strings.NewReplacer("bin/${SERVICE}", path, "/root-fs", dir).Replace(step)
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", script)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TARGETARCH=here", "BUILDARCH=here"}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		var files int
		require.NoError(t, filepath.WalkDir(filepath.Join(dir, "cache"), func(path string, d os.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := d.Info()
			require.NoError(t, err)
			require.Zero(t, info.Mode().Perm()&0o222, "nobody writes %s", path)
			require.Equal(t, os.FileMode(0o444), info.Mode().Perm()&0o444, "everybody reads %s", path)
			if !d.IsDir() {
				files++
			}
			return nil
		}))
		require.Equal(t, isSetting(service, "EXTRACT_CACHE_DIR"), files > 0, service)
	}
}

// composed is what compose.yaml says of a service.
type composed struct {
	Image, User string
	Build       struct{ Args map[string]string }
	Command     []string
	Profiles    []string
	Environment map[string]any
	DependsOn   map[string]struct{ Condition string } `json:"depends_on"`
	Healthcheck struct{ Test []string }
	ReadOnly    bool     `json:"read_only"`
	CapDrop     []string `json:"cap_drop"`
	Volumes     []string
}

// TestCompose: an image per binary, only names of settings, settings that the services take, and nothing starts before the schema.
func TestCompose(t *testing.T) {
	var compose struct{ Services map[string]composed }
	read(t, "deploy/compose.yaml", &compose)
	var ours []string
	for name, s := range compose.Services {
		for needed := range s.DependsOn {
			require.Contains(t, compose.Services, needed, name)
			require.Subset(t, s.Profiles, compose.Services[needed].Profiles, "%s needs %s, which is not started with it", name, needed)
		}
		if s.Build.Args == nil {
			require.NotEmpty(t, s.Healthcheck.Test, name)
			continue
		}
		service := s.Build.Args["SERVICE"]
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		require.Equal(t, "millweir/"+service+":${VERSION:-dev}", s.Image, name)
		if service == commandLine {
			continue // one-shot commands
		}
		ours = append(ours, service)
		require.Equal(t, []string{"CMD", "/service", "--probe"}, s.Healthcheck.Test, name)
		require.Equal(t, "service_completed_successfully", s.DependsOn["migrate"].Condition, name)
		checkComposed(t, name, s)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(known)), ours)
	require.Equal(t, []string{"migrate", "up"}, compose.Services["migrate"].Command)
	require.Equal(t, "service_healthy", compose.Services["migrate"].DependsOn["mariadb"].Condition)
	require.Equal(t, []string{"kafka", "init"}, compose.Services["kafka-init"].Command)
	for name := range compose.Services["kafka-init"].Environment {
		require.True(t, isSetting("outbox-relay", name), name)
	}
	for _, service := range []string{"outbox-relay", "kafka-consumer"} {
		require.Equal(t, "service_completed_successfully", compose.Services[service].DependsOn["kafka-init"].Condition)
		require.Equal(t, compose.Services["kafka-init"].Profiles, compose.Services[service].Profiles)
	}
	for server, profiles := range map[string][]string{ // a server that nothing uses does not start
		"mariadb": nil, "redis": nil, "chroma": nil, "kafka": {"kafka"}, "rabbitmq": {"mirror"},
	} {
		require.Contains(t, compose.Services, server)
		require.Equal(t, profiles, compose.Services[server].Profiles, server)
	}
}

// isSetting tells whether a service reads a variable.
func isSetting(service, name string) bool {
	return slices.ContainsFunc(known[service], func(k Setting) bool { return k.Name == name })
}

// checkComposed: the service takes its settings on both roads, and if it knows of brokers, then exactly where a relay runs.
func checkComposed(t *testing.T, name string, s composed) {
	t.Helper()
	path, err := binary(s.Build.Args["SERVICE"])
	require.NoError(t, err)
	for _, shell := range []map[string]string{
		{"TELEGRAM_BOT_TOKEN": "1:token"}, {"TELEGRAM_BOT_TOKEN": "1:token", "INGEST_QUEUE": "kafka", "COMPOSE_PROFILES": "kafka"},
	} {
		var env []string
		for setting, value := range s.Environment {
			require.True(t, isSetting(s.Build.Args["SERVICE"], setting), "%s: %s is no setting", name, setting)
			env = append(env, setting+"="+expand(text(value), shell))
		}
		cmd := exec.CommandContext(t.Context(), path, "--check-config")
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		if !isSetting(s.Build.Args["SERVICE"], "KAFKA_BOOTSTRAP_SERVERS") {
			continue
		}
		runs := shell["COMPOSE_PROFILES"] == "kafka" || slices.Contains(s.Profiles, "kafka")
		require.Equal(t, runs, slices.Contains(env, "KAFKA_BOOTSTRAP_SERVERS=kafka:9092"), "%s: %v", name, env)
	}
}

// expand takes ${NAME:-default} and ${NAME:+instead} as a shell with these variables would.
func expand(value string, shell map[string]string) string {
	return os.Expand(value, func(expr string) string {
		name, fallback, _ := strings.Cut(expr, ":-")
		name, instead, other := strings.Cut(name, ":+")
		switch given := shell[name]; {
		case given != "" && other:
			return instead
		case given != "":
			return given
		default:
			return fallback
		}
	})
}
