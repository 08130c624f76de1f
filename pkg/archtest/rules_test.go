package archtest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	ruleRow = regexp.MustCompile(`(?m)^\| ([ILA]\d+) \| (.+) \|$`)
	ruleIDs = regexp.MustCompile(`(?m)^\t\{"([IL]\d+)", "`)
	// testID is a test that carries an id: TestA08, TestI12HoldsAfterACrash.
	testID = regexp.MustCompile(`(?m)^func (Test([AIL])0*(\d+)(?:[A-Z_]\w*)?)\(`)
)

// rows are the rules of deploy/docs/rules.md by their ids: the cells of each, without the id.
func rows(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, m := range ruleRow.FindAllStringSubmatch(source(t, "deploy/docs/rules.md"), -1) {
		require.Empty(t, out[m[1]], "%s has two rows", m[1])
		out[m[1]] = strings.Split(m[2], " | ")
	}
	return out
}

// tests are the checks of a cell that fail by themselves: tests and drills.
func tests(cell string) (out []string) {
	for _, m := range checkNames.FindAllStringSubmatch(cell, -1) {
		if where, _, _ := strings.Cut(m[1], " "); strings.Contains(where, "/") || where == "drill" {
			out = append(out, m[1])
		}
	}
	return out
}

// Every rule names a test or a drill that is there, and every check that the page names is there.
func TestEveryRuleHasItsTest(t *testing.T) {
	t.Parallel()
	all, named := rows(t), map[string]bool{}
	for letter, last := range map[string]int{"I": 44, "L": 6, "A": 38} {
		for n := 1; n <= last; n++ {
			id := letter + strconv.Itoa(n)
			require.NotEmpty(t, all[id], "%s has no row", id)
			held := tests(all[id][len(all[id])-1])
			require.NotEmpty(t, held, "%s names no test", id)
			for _, name := range held {
				named[name] = true
			}
		}
	}
	require.Len(t, all, 44+6+38)
	found := checkNames.FindAllStringSubmatch(source(t, "deploy/docs/rules.md"), -1)
	for _, f := range found {
		require.Empty(t, missing(t, f[1]), "deploy/docs/rules.md")
	}
	t.Logf("%d rules, held by %d tests and drills", len(all), len(named))
}

// The page and the judges know the same rules, and the page says who judges each.
func TestRulesAreThoseOfTheJudges(t *testing.T) {
	t.Parallel()
	all := rows(t)
	judged := ruleIDs.FindAllStringSubmatch(source(t, "pkg/taskstate/history/rules.go")+source(t, "pkg/fsck/rules/rules.go"), -1)
	require.Len(t, judged, 44+6)
	for _, m := range judged {
		require.Len(t, all[m[1]], 3, "cells of %s", m[1])
		require.Contains(t, all[m[1]][1], "`rule "+m[1]+"`")
		if missing(t, "model "+m[1]) == "" {
			require.Contains(t, all[m[1]][1], "`model "+m[1]+"`")
		}
	}
}

// A test with an id in its name is named in that id's row.
func TestEveryTestWithAnIDHasItsRow(t *testing.T) {
	t.Parallel()
	all, found := rows(t), 0
	written(t, func(path string, text []byte) {
		for _, problem := range strangers(all, path, string(text), &found) {
			t.Error(problem)
		}
	})
	require.Greater(t, found, 25, "the search must find tests")
}

// strangers returns a line for each test of a file whose id's row does not name it. It adds the number of tests
// with an id to found.
func strangers(all map[string][]string, path, text string, found *int) (problems []string) {
	if !strings.HasSuffix(path, "_test.go") {
		return nil
	}
	folder := path[:strings.LastIndexByte(path, '/')]
	for _, m := range testID.FindAllStringSubmatch(text, -1) {
		*found++
		id := m[2] + m[3]
		cells := all[id]
		if len(cells) == 0 || !slices.Contains(tests(cells[len(cells)-1]), folder+" "+m[1]) {
			problems = append(problems, "the row of "+id+" in deploy/docs/rules.md does not name `"+folder+" "+m[1]+"`")
		}
	}
	return problems
}

func TestRowsBite(t *testing.T) {
	t.Parallel()
	all, found := rows(t), 0
	const here = "services/ingest-api/gateway/x_test.go"
	require.Empty(t, strangers(all, here, "\nfunc TestA08(t *testing.T) {\nfunc TestIDs(t *testing.T) {\nfunc TestA8b(t *testing.T) {\n", &found))
	require.Equal(t, 1, found)
	require.Len(t, strangers(all, here, "\nfunc TestA99(t *testing.T) {\n", &found), 1)
	require.Len(t, strangers(all, here, "\nfunc TestI12Holds(t *testing.T) {\n", &found), 1)
	require.Len(t, strangers(all, "pkg/ingest/x_test.go", "\nfunc TestA08(t *testing.T) {\n", &found), 1, "of another folder")
	require.Equal(t, []string{"pkg/x TestY", "drill main-x"}, tests("`pkg/x TestY`, `rule I1`, `drill main-x`, `make x`"))
	require.Empty(t, tests("held by hope"))
}
