package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/scripts/peers/rival"
	"github.com/millweir/millweir/scripts/peers/stage"
)

// Markdown is the whole report as tables.
func (r *Report) Markdown() string {
	head := fmt.Sprintf("Measured %s on %d CPUs (kernel %s), %s tasks, %d repetitions.\nLoad of the machine at their starts and at the end: %s.",
		r.At.Format("2006-01-02 15:04 UTC"), r.CPUs, r.Kernel, number(float64(r.Tasks)), r.Reps, strings.Join(r.Loads, ", "))
	parts := []string{head}
	if len(r.Asked) > 0 {
		parts = append(parts, r.askedTable())
	}
	parts = append(parts, r.speedTable(), r.costTable())
	if remarks := r.remarkList(); remarks != "" {
		parts = append(parts, remarks)
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// askedTable is what is asked beside what was measured.
func (r *Report) askedTable() string {
	rows := [][]string{{"Millweir", "asked", "measured", "lowest … highest", "", "by CPU time"}}
	for _, f := range r.Asked {
		asked := "–"
		if f.Relation != Told {
			asked = fmt.Sprintf("%s %g %s", f.Relation, f.Asked, f.Unit)
		}
		row := []string{f.Name, asked, "–", "", "not measured", ""}
		if f.Measured.N > 0 {
			row = []string{f.Name, asked, number(f.Measured.Median) + " " + f.Unit, f.Measured.ends(), verdict(f), ""}
		}
		if f.ByCPU.N > 0 {
			row[5] = number(f.ByCPU.Median) + " ×"
		}
		rows = append(rows, row)
	}
	return table(rows)
}

func verdict(f Figure) string {
	switch {
	case f.Relation == Told:
		return ""
	case f.Met:
		return "met"
	}
	return "MISSED"
}

// speedTable is how fast each system was.
func (r *Report) speedTable() string {
	rows := [][]string{{
		"system", "keeps", "submit/s", "drain/s", "lowest … highest", "submit + drain/s",
		fmt.Sprintf("sent → start at %d/s, p50 · p99 ms", r.Rate), "commit → start, p50 · p99 ms",
	}}
	for _, s := range r.systems() {
		drained := r.Spread(s, drain)
		rows = append(rows, []string{
			s, r.keeps(s), r.Spread(s, Rate(rival.PhaseSubmit)).text(), drained.text(), drained.ends(), r.Spread(s, combined).text(),
			pair(r.Spread(s, sentP50), r.Spread(s, sentP99)), pair(r.Spread(s, commitP50), r.Spread(s, commitP99)),
		})
	}
	return table(rows)
}

// costTable is what a task cost in each phase that is a matter of throughput.
func (r *Report) costTable() string {
	rows := [][]string{{
		"system", "phase", "SQL statements", "commits", "fsyncs", "redo bytes", "Redis commands", "Redis reads", "CPU µs: system", "CPU µs: servers",
	}}
	for _, s := range r.systems() {
		for _, phase := range []rival.Phase{rival.PhaseSubmit, rival.PhaseDrain, rival.PhaseCycle} {
			if c, ok := r.costs(s, phase); ok {
				rows = append(rows, append([]string{s, string(phase)}, costs(c)...))
			}
		}
	}
	return table(rows)
}

func costs(c stage.Counters) []string {
	return []string{
		small(c.Statements), small(c.Commits), small(c.Fsyncs), number(c.RedoBytes), small(c.RedisCommands), small(c.RedisReads),
		number(c.ClientMicros), number(c.ServerMicros),
	}
}

// remarkList is what the systems had to say.
func (r *Report) remarkList() string {
	var out []string
	for _, s := range r.systems() {
		for _, remark := range r.remarks(s) {
			out = append(out, "- "+s+": "+strings.Join(strings.Fields(remark), " "))
		}
	}
	return strings.Join(out, "\n")
}

func (s Spread) text() string {
	if s.N == 0 {
		return "–"
	}
	return number(s.Median)
}

func (s Spread) ends() string {
	if s.N < 2 {
		return ""
	}
	return number(s.Min) + " … " + number(s.Max)
}

func pair(a, b Spread) string {
	if a.N == 0 {
		return "–"
	}
	return a.text() + " · " + b.text()
}

// small is a count per task: three digits after the point, nothing for nothing.
func small(v float64) string {
	if math.Abs(v) < 0.0005 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// number is a figure with as many digits as it is good for.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return thousands(int64(math.Round(v)))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a < 0.005:
		return "0"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// thousands is 12,345.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// table is a table of Markdown whose columns also stand under each other; the first row is its head.
func table(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 3)
		}
	}
	var b strings.Builder
	line := func(cells []string, fill string) {
		for i, cell := range cells {
			b.WriteString("| " + cell + strings.Repeat(fill, widths[i]-utf8.RuneCountInString(cell)) + " ")
		}
		b.WriteString("|\n")
	}
	line(rows[0], " ")
	line(make([]string, len(widths)), "-")
	for _, row := range rows[1:] {
		line(row, " ")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// The tables stand between these lines of a page.
const (
	begin = "<!-- peers: begin (written by peers -doc; do not edit) -->"
	end   = "<!-- peers: end -->"
)

// IntoPage puts the tables into a page between its two marks.
func (r *Report) IntoPage(page string) (string, error) {
	head, rest, ok1 := strings.Cut(page, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("the page has no place for the tables: a line %q and a line %q", begin, end)
	}
	return head + begin + "\n\n" + r.Markdown() + "\n" + end + tail, nil
}
