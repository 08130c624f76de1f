package chart

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// dead is where nothing listens.
const dead = "127.0.0.1:1"

// addresses are what the Secret of these tests holds: nobody answers there.
var addresses = map[string]string{
	"MYSQL_DSN":       "mill:weir@tcp(" + dead + ")/mill",
	"REDIS_URL":       "redis://" + dead,
	"CHROMA_BASE_URL": "http://" + dead,

	"RABBITMQ_URL": "amqp://mill:weir@" + dead,

	"TELEGRAM_BOT_TOKEN": "1:token", "TELEGRAM_WEBHOOK_SECRET": "secret",
}

// environment is a container's as a process would see it, with addresses in place of the Secret.
func environment(c corev1.Container, replace map[string]string) []string {
	var env []string
	for _, v := range c.Env {
		value, ok := replace[v.Name]
		switch {
		case ok:
		case v.ValueFrom == nil:
			value = v.Value
		default:
			value, ok = addresses[v.Name]
			if !ok {
				continue // a key that the Secret does not have: optional
			}
		}
		env = append(env, v.Name+"="+value)
	}
	return env
}

// secretFor is what a Secret has for a setting that is refused without another one: empty where values do not name that.
func secretFor(values, other string) string {
	if strings.Contains(values, other) {
		return "a secret of a provider's or broker's"
	}
	return ""
}

// containers are those of a rendering's services.
func containers(t *testing.T, values string) map[string]corev1.Container {
	t.Helper()
	all := map[string]corev1.Container{}
	for service := range known {
		for _, obj := range objects(t, "mill", values) {
			if pod := podOf(obj); pod != nil && pod.Spec.Containers[0].Name == service {
				all[service] = pod.Spec.Containers[0]
			}
		}
	}
	return all
}

// TestServicesTakeTheirSettings: every binary calls the variables of its container good.
func TestServicesTakeTheirSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workflows.yaml")
	require.NoError(t, os.WriteFile(file, []byte("workflows: []\n"), 0o600))
	for name, values := range sets(t) {
		for service, c := range containers(t, values) {
			path, err := binary(service)
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), path, "--check-config")
			cmd.Env = environment(c, map[string]string{
				"KAFKA_SASL_PASSWORD": secretFor(values, "KAFKA_SASL_MECHANISM"), "OIDC_CLIENT_SECRET": secretFor(values, "OIDC_ISSUER"), "WORKFLOWS_FILE": file,
			})
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s %s: %s", name, service, out)
			require.NotContains(t, string(out), "is not a setting")
		}
	}
}

// TestProbesAreTheServices: what the kubelet would ask, asked from a running service without any dependency:
// it is alive and not ready, and the container's own probe says so too.
func TestProbesAreTheServices(t *testing.T) {
	all := containers(t, bothRoads)
	require.Len(t, all, len(known))
	for service, c := range all {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			ports := map[string]int32{}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			env := environment(c, nil)
			for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				require.Contains(t, env, "OPERATOR_ADDR=:"+text(ports[probe.HTTPGet.Port.StrVal]), "the port of the probe")
			}
			if _, ok := ports["http"]; ok {
				require.Contains(t, env, "HTTP_ADDR=:"+text(ports["http"]))
			}
			url := startService(t, service, c.Args, environment(c, map[string]string{
				"OPERATOR_ADDR": "127.0.0.1:0", "HTTP_ADDR": "127.0.0.1:0", "UPLOAD_DIR": t.TempDir(), "KAFKA_BOOTSTRAP_SERVERS": dead, "TELEGRAM_API_URL": "http://" + dead,
			}))
			require.Equal(t, http.StatusOK, ask(t, url+c.StartupProbe.HTTPGet.Path))
			require.Equal(t, http.StatusOK, ask(t, url+c.LivenessProbe.HTTPGet.Path))
			require.Equal(t, http.StatusServiceUnavailable, ask(t, url+c.ReadinessProbe.HTTPGet.Path))
		})
	}
}

// startService runs a binary until the test ends and returns its operator's address.
func startService(t *testing.T, service string, args, env []string) string {
	t.Helper()
	path, err := binary(service)
	require.NoError(t, err)
	ctx, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	cmd.Dir = t.TempDir()
	logs := &strings.Builder{}
	cmd.Stderr = logs
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		kill()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "operator "); ok {
			return url
		}
	}
	kill()
	_ = cmd.Wait() // it ended by itself
	require.Fail(t, "no operator's address", logs.String())
	return ""
}

func ask(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	return resp.StatusCode
}

// TestMigrationsRun: the Job's arguments and the names of its variables bring a database up to date.
func TestMigrationsRun(t *testing.T) {
	out, err := runJob(t, minimal, "migrate", map[string]string{"DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "mill.db"), "MYSQL_DSN": ""})
	require.NoError(t, err, out)
	require.Contains(t, out, "the schema is up to date")
}

// TestTopicsAreAskedFor: the Job's arguments and variables are good, with a login too; what it misses is a broker.
func TestTopicsAreAskedFor(t *testing.T) {
	for _, values := range []string{bothRoads, fullValues(t)} {
		out, err := runJob(t, values, "kafka-init", map[string]string{"KAFKA_BOOTSTRAP_SERVERS": dead, "KAFKA_SASL_PASSWORD": secretFor(values, "KAFKA_SASL_MECHANISM")})
		require.Error(t, err)
		require.Contains(t, out, "make topics: queue unavailable")
		require.Contains(t, out, dead)
	}
}

// runJob runs the command of a Job here.
func runJob(t *testing.T, values, name string, replace map[string]string) (output string, err error) {
	t.Helper()
	path, err := binary(commandLine)
	require.NoError(t, err)
	job := jobs(objects(t, "mill", values))[name]
	require.NotNil(t, job, name)
	c := job.Spec.Template.Spec.Containers[0]
	cmd := exec.CommandContext(t.Context(), path, c.Args...)
	cmd.Env = environment(c, replace)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
