package views

import (
	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Check renders a check without its report.
func Check(c checks.Check) wire.Check {
	t, r := c.Task, c.Request
	v := wire.Check{
		CheckID: t.ID, UserID: r.By, Deep: r.Deep, History: r.History, Repair: r.Repair, DryRun: r.DryRun, Reason: r.Reason, Status: t.Status,
		StepsDone: t.Progress.Processed, Steps: t.Progress.Total, ErrorMessage: wire.NullText(t.ErrorMessage), CreatedAt: wire.At(t.CreatedAt),
	}
	if t.Status.Terminal() {
		v.EndedAt = wire.MaybeAt(t.UpdatedAt)
	}
	if c.Result != nil {
		v.Violations, v.Seconds = &c.Result.Violations, new(c.Result.Took().Seconds())
		if r := c.Result.Repair; r != nil && !r.DryRun {
			v.Left = &r.Rest
		}
	}
	return v
}

// CheckReport renders a check with all that it says.
func CheckReport(c checks.Check) wire.CheckReport {
	v := wire.CheckReport{Check: Check(c), Rules: []wire.CheckRule{}}
	if c.Result == nil {
		return v
	}
	v.Young, v.Uncompared, v.Shortened = c.Result.Young, c.Result.Uncompared, c.Result.Shortened
	v.Rules = web.Each(c.Result.Rules, func(r checks.Rule) wire.CheckRule {
		return wire.CheckRule{
			Rule: r.Rule, Sentence: r.Sentence, Judged: r.Judged, Violations: r.Violations, NotJudged: wire.NullText(r.NotJudged),
			Examples: web.Each(r.Examples, func(e checks.Example) wire.CheckExample { return wire.CheckExample(e) }),
		}
	})
	if r := c.Result.Repair; r != nil {
		v.RepairReport = &wire.CheckRepair{
			DryRun: r.DryRun, Left: r.Left, LeftCount: r.LeftAll, Mends: web.Each(r.Mends, func(m checks.Mend) wire.CheckMend { return wire.CheckMend(m) }),
		}
	}
	return v
}
