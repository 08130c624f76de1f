package cli_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/millweir/cli"
)

// keyed notes the keys that a gateway was sent.
func (b *bundle) keyed() *[]string {
	var keys []string
	b.mux.HandleFunc("GET /api/knowledge/tasks/x", func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Authorization"))
		reply(w, http.StatusOK, aTask("x", "RUNNING"))
	})
	return &keys
}

// Profiles say the server and whence its key comes; flags and the environment win, and a key goes to its own server alone.
func TestProfiles(t *testing.T) {
	t.Parallel()
	b, other := setup(t), setup(t)
	keys, others := b.keyed(), other.keyed()
	b.config = t.TempDir()
	delete(b.env, "MILLWEIR_SERVER")
	secret := write(t, "key", "mw_live_secret\n")
	must := b.must(t)
	must(0, "config", "set", "server", b.server.URL+"/", "--profile", "work")
	must(0, "config", "set", "api-key-file", secret, "--profile", "work")
	must(0, "config", "set", "server", other.server.URL, "--profile", "home")
	must(0, "tasks", "get", "x")
	must(0, "tasks", "get", "x", "--profile", "home")
	require.Equal(t, []string{"Bearer mw_live_secret"}, *keys, "the first profile is the current one")
	require.Equal(t, []string{""}, *others)
	must(0, "tasks", "get", "x", "--server", other.server.URL)
	b.env["MILLWEIR_SERVER"] = other.server.URL
	must(0, "tasks", "get", "x")
	require.Equal(t, []string{"", "", ""}, *others, "the key of one server is never sent to another")
	delete(b.env, "MILLWEIR_SERVER")
	b.env["MILLWEIR_API_KEY"] = "mw_live_env"
	must(0, "tasks", "get", "x")
	require.Equal(t, "Bearer mw_live_env", (*keys)[1])
	delete(b.env, "MILLWEIR_API_KEY")
	must(0, "config", "set", "api-key-file", "", "--profile", "work")
	must(0, "config", "set", "api-key-env", "WORK_KEY", "--profile", "work")
	must(cli.ExitBadInput, "tasks", "get", "x")
	require.Contains(t, b.err.String(), "variable WORK_KEY, which is not set")
	b.env["WORK_KEY"] = "mw_live_work"
	must(0, "tasks", "get", "x")
	require.Equal(t, "Bearer mw_live_work", (*keys)[2])
	must(0, "config", "use", "home")
	require.Regexp(t, `home +yes +`+other.server.URL+` +-\nwork +- +`+b.server.URL+` +variable WORK_KEY\n`, must(0, "config", "list"))
	require.Contains(t, must(0, "config", "get", "--profile", "work", "-o", "json"), `"apiKeyEnv": "WORK_KEY"`)
	file := filepath.Join(b.config, "millweir", "config.json")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(text), "mw_live_")
}

// What cannot be a setting is refused, a key above all; a file that is damaged is named, and does not stop who needs none of it.
func TestProfilesThatAreNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.keyed()
	b.config = t.TempDir()
	for _, c := range []struct {
		code int
		args string
	}{
		{cli.ExitUsage, "set api-key mw_live_x"}, {cli.ExitBadInput, "set api-key-env mw_live_x"}, {cli.ExitBadInput, "set api-key-env A=B"},
		{cli.ExitBadInput, "set server ftp://x"}, {cli.ExitBadInput, "set server http://u:p@x"}, {cli.ExitBadInput, "set server localhost:8081"},
		{cli.ExitBadInput, "set api-key-file /no/such/file"}, {cli.ExitBadInput, "set api-key-file /dev/zero"}, {cli.ExitUsage, "set colour red"},
		{cli.ExitUsage, "set server http://x --profile ../x"}, {cli.ExitNotFound, "use nobody"}, {cli.ExitNotFound, "get"}, {cli.ExitUsage, "set server"},
	} {
		require.Equal(t, c.code, b.run(t.Context(), append([]string{"config"}, strings.Fields(c.args)...)...), "%s: %s", c.args, b.err.String())
	}
	require.Empty(t, b.must(t)(0, "config", "list", "-o", "jsonl"))
	require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "tasks", "get", "x", "--profile", "nobody"))

	file := filepath.Join(b.config, "millweir", "config.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	for _, text := range []string{"", "{", "[]", `{"profiles":{"a":null}}`, `{"profiles":{"../a":{}}}`, `{"apiKey":"x"}`, strings.Repeat(" ", 2<<20)} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.Equal(t, cli.ExitBadInput, b.run(t.Context(), "tasks", "get", "x"), "%.20q", text)
		require.Contains(t, b.err.String(), file)
		require.Equal(t, cli.ExitOK, b.run(t.Context(), "completion", "bash"), "%.20q", text)
	}
	b.env["MILLWEIR_API_KEY"] = "k"
	require.Equal(t, cli.ExitOK, b.run(t.Context(), "tasks", "get", "x"), "all is said by the environment")
}

// Output can be filtered, cut to a terminal, and reduced to names.
func TestOutputForms(t *testing.T) {
	t.Parallel()
	b, _ := cannedGateway(t)
	must := b.must(t)
	require.Equal(t, uuid1+"\n", must(0, "tasks", "list", "--jq", ".[].taskId"))
	require.Equal(t, "40\n", must(0, "tasks", "list", "-o", "jsonl", "--jq", ".progress"))
	require.Equal(t, "{\n  \"a\": 1\n}\n", must(0, "tasks", "get", uuid1, "--jq", "{a: 1}"))
	require.Equal(t, "[]\n", must(0, "tasks", "list", "--jq", "map(select(.status == \"DEAD\"))"))
	for _, wrong := range []string{".[", "nosuch", "$x", "include \"x\"; .", "$ENV.HOME | error"} {
		require.NotZero(t, b.run(t.Context(), "tasks", "list", "--jq", wrong), wrong)
		require.Contains(t, b.err.String(), "--jq")
		require.Empty(t, b.out.String(), wrong)
	}
	must(cli.ExitBadInput, "tasks", "list", "--jq", ".[].taskId | tonumber")
	must(cli.ExitUsage, "tasks", "list", "--jq", ".", "-o", "name")
	must(cli.ExitUsage, "outbox", "stats", "-o", "name")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NotZero(t, b.run(ctx, "tasks", "list", "--jq", "repeat(.)"))

	b.width = 120
	line := strings.Split(must(0, "tasks", "list"), "\n")[1]
	require.LessOrEqual(t, len([]rune(line)), 120)
	require.Contains(t, line, uuid1)
	require.True(t, strings.HasSuffix(line, "…"), line)
	require.Contains(t, must(0, "tasks", "list", "-o", "wide"), "embed batch 1/2: refused")
	b.width = 20
	require.Contains(t, must(0, "tasks", "list"), uuid1, "ids are never cut")
	b.width = 0
	require.Contains(t, must(0, "documents", "list"), `Guide\x1b[31m`)
	require.NotContains(t, must(0, "documents", "list", "-o", "wide"), "\x1b")
}

// A list is shown again until the person goes; what no look can cure ends it.
func TestListsAreWatched(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, interrupt := context.WithCancel(t.Context())
	looks := 0
	b.mux.HandleFunc("GET /api/knowledge/tasks", func(w http.ResponseWriter, _ *http.Request) {
		switch looks++; looks {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2:
			reply(w, http.StatusOK, map[string]any{"items": []any{aTask("a", "RUNNING")}})
		default:
			interrupt()
		}
	})
	b.width = 200
	require.Equal(t, cli.ExitInterrupted, b.run(ctx, "tasks", "list", "--watch"))
	require.Contains(t, b.err.String(), "HTTP_502")
	require.True(t, strings.HasPrefix(b.out.String(), "\x1b[H\x1b[2JTASK"), b.out.String())
	require.Equal(t, cli.ExitUsage, b.run(t.Context(), "tasks", "list", "--watch", "-o", "json"))
	require.Equal(t, cli.ExitNotFound, b.run(t.Context(), "documents", "list", "--watch"))
}
