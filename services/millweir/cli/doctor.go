package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/services/millweir/client"
)

// The states of a finding.
const (
	FindingOK   = "ok"
	FindingWarn = "warn"
	FindingFail = "FAIL"
)

// Finding is one thing that doctor looked at.
type Finding struct {
	State  string `json:"state"` // ok, warn or FAIL
	Check  string `json:"check"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

const (
	// clockWarn and clockFail are how far the clocks of this machine and of the server may lie apart: tokens and filters by time suffer.
	clockWarn, clockFail = 10 * time.Second, 5 * time.Minute
	// doctorPatience bounds each request of doctor.
	doctorPatience = 15 * time.Second
)

// Examine looks at the gateway from the outside. Nothing is changed there.
func (a *App) Examine(ctx context.Context) []Finding {
	e := &examination{App: a, ctx: ctx, api: a.Gateway()}
	if e.reach() {
		if !e.apiOnly {
			e.ready()
			e.version()
		}
		e.key()
	}
	return e.found
}

// examination collects findings.
type examination struct {
	*App
	ctx   context.Context //nolint:containedctx // it lives for one command
	api   *client.Client
	found []Finding

	apiOnly bool // a proxy leads to nothing of the gateway's but its API
}

func (e *examination) say(state, check, remedy, format string, args ...any) {
	e.found = append(e.found, Finding{state, check, fmt.Sprintf(format, args...), remedy})
}

// get reads a page, whatever its status.
func (e *examination) get(path string) (*client.Answer, error) {
	ctx, stop := context.WithTimeout(e.ctx, doctorPatience)
	defer stop()
	return e.api.Ask(ctx, path)
}

// reach says whether there is a gateway at all, and compares the clocks.
func (e *examination) reach() bool {
	const check = "server"
	began := time.Now()
	got, err := e.get("/healthz")
	if err != nil {
		e.say(FindingFail, check, "Start the server (make run), or say where it is with --server, MILLWEIR_SERVER or a profile.", "%s: %v", e.Server, err)
		return false
	}
	if got.Status != http.StatusOK && e.hasAPI() {
		e.apiOnly = true
		e.say(FindingWarn, check, "Lead /healthz, /readyz and /openapi.json to the gateway to see more.", "%s leads to the API alone: /healthz returned %d", e.Server, got.Status)
		return true
	}
	if got.Status != http.StatusOK {
		e.say(FindingFail, check, "See whether the address is that of a millweir gateway, and what stands before it.", "%s/healthz returned %d", e.Server, got.Status)
		return false
	}
	e.say(FindingOK, check, "", "%s is alive", e.Server)
	if u, err := url.Parse(e.Server); err == nil && u.Scheme == "http" && e.App.key != "" && !loopback(u.Hostname()) {
		e.say(FindingWarn, "encryption", "Use https: others on the way can read the key.", "the API key goes to %s in the clear", u.Host)
	}
	e.clock(got.Header.Get("Date"), began)
	return true
}

// hasAPI reports whether a gateway returns requests to its API, with any key.
func (e *examination) hasAPI() bool {
	ctx, stop := context.WithTimeout(e.ctx, doctorPatience)
	defer stop()
	err := e.api.Get(ctx, "/api/knowledge/documents?limit=0", nil)
	var refused *client.Error
	return err == nil || errors.As(err, &refused) && !refused.Stranger
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

// clock compares this machine's clock with the server's Date, which has whole seconds.
func (e *examination) clock(date string, began time.Time) {
	const check, remedy = "clock", "Set the clocks of both machines by NTP."
	theirs, err := http.ParseTime(date)
	if err != nil {
		e.say(FindingWarn, check, "", "the server does not say its time")
		return
	}
	apart := theirs.Sub(began).Abs().Round(time.Second)
	switch {
	case apart > clockFail:
		e.say(FindingFail, check, remedy, "the server's clock is %s away: tokens may be refused", apart)
	case apart > clockWarn:
		e.say(FindingWarn, check, remedy, "the server's clock is %s away", apart)
	default:
		e.say(FindingOK, check, "", "the server's clock agrees")
	}
}

// ready shows what the server says of what it depends on.
func (e *examination) ready() {
	const check = "ready"
	got, err := e.get("/readyz")
	var report process.Report
	if err == nil {
		err = json.Unmarshal(got.Body, &report)
	}
	if err != nil {
		e.say(FindingFail, check, "See the server's log.", "/readyz: %v", err)
		return
	}
	switch {
	case report.Draining:
		e.say(FindingWarn, check, "Wait, or use another instance.", "the server is about to stop")
	case report.Ready:
		e.say(FindingOK, check, "", "the server takes requests")
	default:
		e.say(FindingFail, check, "Mend what is named; deploy/docs/runbook.md says how.", "the server is not ready: %s", strings.Join(report.Missing, ", "))
	}
	e.found = append(e.found, OfReport(report, "server: ")...)
}

// OfReport are the findings of readiness checks that say something.
func OfReport(report process.Report, prefix string) (found []Finding) {
	for _, c := range report.Checks {
		switch {
		case c.Error != "":
			found = append(found, Finding{FindingFail, prefix + c.Name, c.Error, "See deploy/docs/runbook.md."})
		case c.Warning != "":
			found = append(found, Finding{FindingWarn, prefix + c.Name, c.Warning, "See deploy/docs/runbook.md."})
		case c.OK:
			found = append(found, Finding{FindingOK, prefix + c.Name, "works", ""})
		}
	}
	return found
}

// version compares the program's with the server's.
func (e *examination) version() {
	const check = "version"
	got, err := e.get("/openapi.json")
	var doc struct {
		Info struct {
			Version string `json:"version"`
		} `json:"info"`
	}
	if err == nil {
		err = json.Unmarshal(got.Body, &doc)
	}
	ours, theirs := process.Version(), doc.Info.Version
	switch {
	case err != nil || theirs == "":
		e.say(FindingWarn, check, "See whether the address is that of a millweir gateway.", "the server does not say its version")
	case ours != theirs:
		e.say(FindingWarn, check, "Use the command line of the server's version when a verb is refused.", "this is %s, the server %s", ours, theirs)
	default:
		e.say(FindingOK, check, "", "both are %s", ours)
	}
}

// key finds out what the key is good for, by requests that change nothing: access is judged before anything else of them.
func (e *examination) key() {
	const check = "key"
	var may, mayNot []string
	for _, try := range []struct {
		what string
		ask  func(ctx context.Context) error
	}{
		{"read", func(ctx context.Context) error { return e.api.Get(ctx, "/api/knowledge/documents?limit=0", nil) }},
		{"search", func(ctx context.Context) error { return e.api.Post(ctx, "/api/knowledge/search", struct{}{}, nil) }},
		{"write", func(ctx context.Context) error { return e.api.Post(ctx, "/api/knowledge/bases", struct{}{}, nil) }},
		{"operator", func(ctx context.Context) error { return e.api.Get(ctx, "/internal/keys?limit=0", nil) }},
	} {
		ctx, stop := context.WithTimeout(e.ctx, doctorPatience)
		err := try.ask(ctx)
		stop()
		var refused *client.Error
		switch {
		case err != nil && !errors.As(err, &refused):
			e.say(FindingFail, check, "See the server's log.", "%v", err)
			return
		case err != nil && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusTooManyRequests):
			remedy := "Set MILLWEIR_API_KEY or a profile; an operator makes keys with millweir keys create."
			e.say(FindingFail, check, cmp.Or(refused.Remedy, remedy), "%s: %s", refused.Code, refused.Message)
			return
		case err != nil && refused.Status == http.StatusForbidden:
			mayNot = append(mayNot, try.what)
		case err != nil && (refused.Stranger || refused.Status >= http.StatusInternalServerError):
			e.say(FindingWarn, check, cmp.Or(refused.Remedy, "See the server's log."), "%s: %s: %s", try.what, refused.Code, refused.Message)
		default:
			may = append(may, try.what)
		}
	}
	text := "may: " + strings.Join(may, ", ")
	if len(mayNot) > 0 {
		text += "; may not: " + strings.Join(mayNot, ", ")
	}
	state, remedy := FindingOK, ""
	if !slices.Contains(may, "write") && !slices.Contains(may, "read") && !slices.Contains(may, "search") {
		state, remedy = FindingWarn, "A key may be for uploads alone; else ask an operator for another one."
	}
	e.say(state, check, remedy, "%s", text)
}

// Diagnose writes the findings; exit 1 when one is a FAIL.
func (a *App) Diagnose(found []Finding) error {
	err := Table(a, found, "STATE\tCHECK\tWHAT\tDO", func(f Finding) []any {
		return []any{f.State, Clean(f.Check), Long(f.Text, 300), Long(cmp.Or(f.Remedy, "-"), 200)}
	})
	if err != nil {
		return err
	}
	if failed := len(slices.DeleteFunc(slices.Clone(found), func(f Finding) bool { return f.State != FindingFail })); failed > 0 {
		return Failed(fmt.Errorf("%d of %d checks failed", failed, len(found)))
	}
	return nil
}
