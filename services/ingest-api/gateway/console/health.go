package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/console/chinese"
)

// checksPath is where checks of the installation are asked for.
const checksPath = "/internal/fsck"

func (h *Handler) healthScreens() map[string]handlerFunc {
	return map[string]handlerFunc{
		"GET /health":                     h.health,
		"POST /health/checks":             operators(h.startCheck),
		"GET /health/checks/{id}":         operators(h.check),
		"POST /health/checks/{id}/repair": operators(h.startRepair),
	}
}

// healthData is the readiness of the process, and for operators the checks of the installation.
type healthData struct {
	process.Report
	List    wire.List[wire.Check]
	Last    *checkData // nil: none was asked for
	Without string     // why this service has no checks
	Watched bool       // the person may see checks
}

// checkData is a check as its report shows it.
type checkData struct {
	wire.CheckReport
	Broken []wire.CheckRule // with violations
	Sound  []wire.CheckRule // that judged something and found nothing
	Idle   []wire.CheckRule // that had nothing to judge, or could not
	JSON   string
}

// lastChecks is how many checks the first screen lists.
const lastChecks = "10"

// health shows the readiness of the process; not ready is a finding and no error.
func (h *Handler) health(p *page) error {
	r, err := p.request(http.MethodGet, "/readyz", nil, "", nil, 0)
	if err != nil {
		return err
	}
	a := &answer{below: p.w, header: http.Header{}}
	p.visit.API(a, r, p.secret)
	d := healthData{Watched: p.Who.Operator() && p.Texts()}
	if err := json.Unmarshal(a.body.Bytes(), &d.Report); err != nil {
		return err
	}
	if !d.Watched {
		return p.show("health", p.T("Health"), d)
	}
	err = p.get(checksPath, url.Values{"limit": {lastChecks}}, &d.List)
	if d.Without = absent(err); err != nil && d.Without == "" {
		return err
	}
	if len(d.List.Items) > 0 {
		if d.Last, err = p.checkOf(d.List.Items[0].CheckID); err != nil {
			return err
		}
	}
	return p.show("health", p.T("Health"), d)
}

// checkOf reads a check and sorts its rules.
func (p *page) checkOf(id string) (*checkData, error) {
	path := under(checksPath, id)
	d := &checkData{}
	if err := p.get(path, nil, &d.CheckReport); err != nil {
		return nil, err
	}
	for _, r := range d.Rules {
		switch {
		case r.Violations > 0:
			d.Broken = append(d.Broken, r)
		case r.Judged > 0 && r.NotJudged == "":
			d.Sound = append(d.Sound, r)
		default:
			d.Idle = append(d.Idle, r)
		}
	}
	var err error
	d.JSON, err = p.raw(path)
	return d, err
}

// Mendable reports whether the check is a dry run that found something to mend.
func (d *checkData) Mendable() bool {
	return d.RepairReport != nil && d.RepairReport.DryRun && len(d.RepairReport.Mends) > 0
}

// Plain reports whether nothing says how the check differs from the shortest one.
func (d *checkData) Plain() bool { return !d.Deep && !d.History && !d.Repair }

// Found are the violations; 0 too where the check has not ended well.
func (d *checkData) Found() int64 {
	if d.Violations == nil {
		return 0
	}
	return *d.Violations
}

// Rest are the violations after a repair.
func (d *checkData) Rest() int64 {
	if d.Left == nil {
		return 0
	}
	return *d.Left
}

// Took is how long the last attempt took, in seconds.
func (d *checkData) Took() float64 {
	if d.Seconds == nil {
		return 0
	}
	return *d.Seconds
}

func (h *Handler) check(p *page) error {
	p.Section = "health"
	d, err := p.checkOf(p.r.PathValue("id"))
	if err != nil {
		return err
	}
	return p.show("check", p.T("Check of the installation"), d)
}

func (h *Handler) startCheck(p *page) error {
	p.Section = "health"
	return p.askCheck(wire.CheckRequest{
		Deep: p.form.Get("deep") != "", History: p.form.Get("history") != "", Repair: p.form.Get("step") == "dryRun",
	})
}

// startRepair mends what a check like this one finds.
func (h *Handler) startRepair(p *page) error {
	p.Section = "health"
	var before wire.CheckReport
	if err := p.get(under(checksPath, p.r.PathValue("id")), nil, &before); err != nil {
		return err
	}
	return p.askCheck(wire.CheckRequest{
		Deep: before.Deep, History: before.History, Repair: true, DryRun: new(bool), Reason: strings.TrimSpace(p.form.Get("reason")),
	})
}

// askCheck leads to the check that it asks for.
func (p *page) askCheck(in wire.CheckRequest) error {
	var made wire.CheckReport
	if err := p.call(http.MethodPost, checksPath, nil, in, &made); err != nil {
		return err
	}
	p.redirect("/health/checks/"+url.PathEscape(made.CheckID), nil)
	return nil
}

// mendTexts say what a repair does, by the API's word.
var mendTexts = map[string]string{
	"delete_vectors": "delete vectors that no row names", "write_vectors": "write vectors of visible versions again, from the cache or embedded anew",
	"embed_vectors": "of these, embedded anew", "mend_rows": "mend rows of documents, where all other witnesses speak against a row",
	"mend_index": "complete the full-text index of knowledge bases", "wake_tasks": "wake tasks that nobody would look at",
	"count_failures": "take tasks that do not fail off the failures", "count_documents": "count the documents of knowledge bases anew",
	"remove_files": "remove files without a row that are older than a day",
}

// MendText says what a repair does.
func (p *page) MendText(what string) string {
	if text, ok := mendTexts[what]; ok {
		return p.T(text)
	}
	return what
}

// RuleText is a rule's sentence in the person's language; English where there is no other.
func (p *page) RuleText(r wire.CheckRule) string {
	if zh, ok := chinese.Rules[r.Rule]; ok && p.Look.Lang == "zh" {
		return zh
	}
	return r.Sentence
}

// WhyNotJudged says why a rule could not judge, in the person's language; English where there is no other. Empty: it could.
func (p *page) WhyNotJudged(r wire.CheckRule) string {
	why := string(r.NotJudged)
	if zh, ok := chinese.NotJudged[why]; ok && p.Look.Lang == "zh" {
		return zh
	}
	return why
}

// ProblemText says what a violation is, in the person's language; English where there is no other.
func (p *page) ProblemText(e wire.CheckExample) string {
	if p.Look.Lang == "zh" {
		if zh, ok := chinese.Problem(e.Problem); ok {
			return zh
		}
	}
	return e.Problem
}

// AboutLink is the page of what a violation is about; empty: it has none.
func (p *page) AboutLink(e wire.CheckExample) string {
	path, known := map[string]string{"task": "/tasks", "document": "/documents", "base": "/bases"}[e.Kind]
	if !known {
		return ""
	}
	return p.Link(path, e.About)
}
