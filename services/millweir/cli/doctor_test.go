package cli_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/millweir/cli"
)

// Doctor names what is wrong with a server from the outside, and what to do.
func TestDoctorFromTheOutside(t *testing.T) {
	t.Parallel()
	const ready = `{"ready":true,"draining":false,"missing":[],"checks":[{"name":"database","ok":true}]}`
	version := `{"info":{"version":"` + process.Version() + `"}}`
	const now = "" // when it is asked: the others run for a while
	for name, c := range map[string]struct {
		date, ready, version string
		health, user         int // status of /healthz and of operators' addresses
		code                 int
		says                 []string
	}{
		"well":        {now, ready, version, 200, 403, 0, []string{"ok ", "is alive", "may: read, search, write; may not: operator", "clock agrees", "server: database"}},
		"operator":    {now, ready, version, 200, 200, 0, []string{"may: read, search, write, operator "}},
		"slow clock":  {time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat), ready, version, 200, 200, 0, []string{"warn ", "Set the clocks"}},
		"wrong clock": {"Mon, 02 Jan 2006 15:04:05 GMT", ready, version, 200, 200, 1, []string{"FAIL ", "tokens may be refused"}},
		"no clock":    {"soon", ready, version, 200, 200, 0, []string{"does not say its time"}},
		"older":       {now, ready, `{"info":{"version":"v0.0.1\u001b[2J"}}`, 200, 200, 0, []string{"warn ", `the server v0.0.1\x1b[2J`}},
		"not ready":   {now, `{"ready":false,"missing":["database"],"checks":[{"name":"database","error":"refused"}]}`, version, 200, 200, 1, []string{"not ready: database", "server: database  refused"}},
		"warned":      {now, `{"ready":true,"checks":[{"name":"uploads","ok":true,"warning":"nearly full"}]}`, version, 200, 200, 0, []string{"warn ", "nearly full"}},
		"a stranger":  {now, "<html>", "<html>", 200, 200, 1, []string{"does not say its version", "FAIL   ready"}},
		"API alone":   {now, "", "", 404, 404, 0, []string{"warn ", "leads to the API alone: /healthz returned 404", "may: read, search, write ", "operator: HTTP_404: default backend"}},
		"revoked key": {now, ready, version, 200, 401, 1, []string{"FAIL   key", "Use a valid key."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
				if c.date != now { // else the server writes its own
					w.Header()["Date"] = []string{c.date}
				}
				switch r.URL.Path {
				case "/healthz":
					w.WriteHeader(c.health)
				case "/readyz":
					_, _ = io.WriteString(w, c.ready)
				case "/openapi.json":
					_, _ = io.WriteString(w, c.version)
				case "/internal/keys":
					if c.user == 404 { // a proxy's
						http.Error(w, "default backend", http.StatusNotFound)
					} else if c.user != 200 {
						reply(w, c.user, map[string]any{"code": "SOME", "message": "no", "remedy": "Use a valid key."})
					}
				default: // the request is judged, and changes nothing
					reply(w, http.StatusUnprocessableEntity, map[string]any{"code": "INVALID_FIELD"})
				}
			})
			require.Equal(t, c.code, b.run(t.Context(), "doctor"), b.out.String())
			for _, want := range c.says {
				require.Contains(t, b.out.String(), want)
			}
			require.NotContains(t, b.out.String(), "\x1b")
			require.Equal(t, c.code, b.run(t.Context(), "doctor", "-o", "json"))
		})
	}
	b := setup(t)
	b.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "another server", http.StatusNotFound) })
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "doctor"))
	require.Contains(t, b.out.String(), "/healthz returned 404")
	require.Contains(t, b.out.String(), "See whether the address is that of a millweir gateway")
	b.server.Close()
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "doctor"))
	require.Contains(t, b.out.String(), "Start the server (make run)")
	b.env["MILLWEIR_SERVER"] = "http://\x7f"
	require.Equal(t, cli.ExitFailed, b.run(t.Context(), "doctor"))
}
