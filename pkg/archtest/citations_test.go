package archtest

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A citation is a decision, an invariant, a rule of liveness or an attack case by its number (D5, I12, L1, A33;
// I1–I11), or a section of the contract (contract §3; §10.3 is the third sentence of section 10).
var (
	numbered = regexp.MustCompile(`\b([DILA])([1-9]\d{0,2})\b(?:–([DILA])?([1-9]\d{0,2})\b)?`)
	section  = regexp.MustCompile(`§(\d+)(?:\.(\d+))?`)
	// whose says of which text a § is, by the words before it.
	whose = regexp.MustCompile(`(?i)(contract|RFC \d+)[^§]{0,20}(?:§[\d.]+, )*$`)
	// outside is the name of a text that is not in the repository.
	outside = regexp.MustCompile(`(?i)\bassurance\b|\blessons? \d+|\b(?:house|hot|lessons|libraries|machine|style|assurance|peers)\.md\b|(?:^|[^\w./-])(?:\.\./)?shared/`)
)

const contractPage = "deploy/docs/contract.md"

// exempt are words that are no citation, by file: they are taken out before it is read.
var exempt = map[string]string{
	"pkg/ingest/extract/pdfgen/pdfgen.go":   "A4 paper",
	"pkg/taskstate/history/history_test.go": "I99", // a rule that is asked for and not there
	// The text of an applied migration cannot change: its sum is in the databases. The glossary explains the words.
	"deploy/docs/glossary.md":                 "assurance 4.1",
	"migrations/mysql/003_api_keys.up.sql":    "assurance 4.1",
	"migrations/mysql/004_audit.up.sql":       "assurance 4.1",
	"migrations/postgres/003_api_keys.up.sql": "assurance 4.1",
	"migrations/postgres/004_audit.up.sql":    "assurance 4.1",
	"migrations/sqlite/003_api_keys.up.sql":   "assurance 4.1",
	"migrations/sqlite/004_audit.up.sql":      "assurance 4.1",
}

// law are the names that can be cited: "D5", "I12", "§3", "§10.3".
type law map[string]bool

// readLaw takes them from the headings of design.md and contract.md and from the rows of rules.md.
func readLaw(t *testing.T) law {
	t.Helper()
	out := law{}
	page := func(path string) string {
		text := source(t, path)
		require.NotEmpty(t, text, "%s is missing", path)
		return text
	}
	for _, m := range regexp.MustCompile(`(?m)^## (D\d+)\b`).FindAllStringSubmatch(page("deploy/docs/design.md"), -1) {
		out[m[1]] = true
	}
	for id := range rows(t) {
		out[id] = true
	}
	contract := page(contractPage)
	heads := regexp.MustCompile(`(?m)^## (\d+)\. `).FindAllStringSubmatchIndex(contract, -1)
	for i, at := range heads {
		end := len(contract)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		number := "§" + contract[at[2]:at[3]]
		out[number] = true
		for _, m := range regexp.MustCompile(`(?m)^(?:#+ )?(\d+)\. `).FindAllStringSubmatch(contract[at[1]:end], -1) {
			out[number+"."+m[1]] = true
		}
	}
	return out
}

// judge returns the citations in one line of a file, and what is wrong with them. In the contract a § without a
// text's name is its own.
func (l law) judge(path, text string) (cited, problems []string) {
	for _, m := range numbered.FindAllStringSubmatch(text, -1) {
		for _, id := range expand(m[1], m[2], m[3], m[4]) {
			cited = append(cited, id)
			if !l[id] {
				problems = append(problems, "nothing is called "+id)
			}
		}
	}
	for _, at := range section.FindAllStringSubmatchIndex(text, -1) {
		id, of := text[at[0]:at[1]], whose.FindStringSubmatch(text[:at[0]])
		switch {
		case of == nil && path != contractPage:
			problems = append(problems, id+" of which text?")
		case of == nil || strings.EqualFold(of[1], "contract"):
			cited = append(cited, id)
			if !l[id] {
				problems = append(problems, "the contract has no "+id)
			}
		}
	}
	if m := outside.FindString(text); m != "" {
		problems = append(problems, fmt.Sprintf("%q is a text outside of the repository", strings.TrimSpace(m)))
	}
	return cited, problems
}

// expand is one id, or all from the first to the last. A range into another letter is its two ends.
func expand(letter, first, toLetter, last string) []string {
	if last == "" {
		return []string{letter + first}
	}
	if toLetter != "" && toLetter != letter {
		return []string{letter + first, toLetter + last}
	}
	from, _ := strconv.Atoi(first)
	to, _ := strconv.Atoi(last)
	var out []string
	for n := from; n <= to; n++ {
		out = append(out, letter+strconv.Itoa(n))
	}
	return out
}

// line is a piece of prose.
type line struct {
	number int
	text   string
}

// prose is what people wrote in a file: comments and strings of Go, the whole of every other file.
func prose(path string, text []byte) (out []line) {
	add := func(number int, piece string) {
		for i, l := range strings.Split(piece, "\n") {
			out = append(out, line{number + i, l})
		}
	}
	if filepath.Ext(path) != ".go" {
		add(1, string(text))
		return out
	}
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return out
		case token.COMMENT, token.STRING:
			add(file.Line(pos), lit)
		default:
		}
	}
}

// kinds are the files that are read.
var kinds = []string{".go", ".sql", ".lua", ".yaml", ".yml", ".proto", ".md", ".sh", ".tpl", ".html", ".example", "Makefile", "Dockerfile", "run"}

// written are the files of the project that people wrote, with their text.
func written(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err = filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name := d.Name()
		switch {
		case d.IsDir() && (name == "testdata" || path == "bin" || path == "data" || strings.HasPrefix(name, ".") && path != "." && name != ".ci"):
			return fs.SkipDir
		case d.IsDir(), !slices.Contains(kinds, filepath.Ext(name)) && !slices.Contains(kinds, name):
			return nil
		case strings.HasPrefix(path, "pkg/archtest/") && strings.HasSuffix(path, "_test.go"):
			return nil // they cite wrongly on purpose
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err == nil {
			visit(path, text)
		}
		return err
	}))
}

// Whoever reads a citation finds what it means in the repository.
func TestCitationsResolve(t *testing.T) {
	t.Parallel()
	l := readLaw(t)
	var problems []string
	count, files := 0, 0
	written(t, func(path string, text []byte) {
		found := 0
		for _, line := range prose(path, text) {
			cited, wrong := l.judge(path, strings.ReplaceAll(line.text, exempt[path], ""))
			found += len(cited)
			for _, w := range wrong {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", path, line.number, w))
			}
		}
		if count += found; found > 0 {
			files++
		}
	})
	t.Logf("%d citations in %d files, %d of them and of outside texts lead nowhere", count, files, len(problems))
	require.Greater(t, count, 500, "the search must find citations, or this passes for nothing")
	require.Empty(t, strings.Join(problems, "\n"))
}

func TestCitationsBite(t *testing.T) {
	t.Parallel()
	l := readLaw(t)
	for text, want := range map[string]string{
		"as design D99 says":                  "nothing is called D99",
		"rules I36–I45":                       "nothing is called I45",
		"(A33, A39)":                          "nothing is called A39",
		`must("L7", "%s")`:                    "nothing is called L7",
		"the table of contract §11":           "the contract has no §11",
		"(contract §10.99)":                   "the contract has no §10.99",
		"Contract's defaults: §2, §12":        "the contract has no §12",
		"see §4":                              "§4 of which text?",
		"as in the assurance plan":            `"assurance"`,
		"(lessons 12)":                        `"lessons 12"`,
		"Lesson 32: one writer":               `"Lesson 32"`,
		"the list of words in house.md":       `"house.md"`,
		"../shared/contract.md":               `"../shared/"`,
		"measured: shared/hot.md, variant L.": `"shared/"`,
	} {
		_, problems := l.judge("x.go", text)
		require.Len(t, problems, 1, text)
		require.Contains(t, problems[0], want, text)
	}
	for text, want := range map[string][]string{
		"(contract §3, §5, design D5, D11)":          {"D5", "D11", "§3", "§5"},
		"I1–I4, L1–L2 and A8":                        {"I1", "I2", "I3", "I4", "L1", "L2", "A8"},
		"rules I23–26 hold":                          {"I23", "I24", "I25", "I26"},
		"contract §2's table":                        {"§2"},
		"(RFC 7518 §3.2), I18N, ID5, D0, 0xA3, L1x":  nil,
		"pkg/shared/x, lessons learnt, D-day, A_1 I": nil,
	} {
		cited, problems := l.judge("x.go", text)
		require.Empty(t, problems, text)
		require.Equal(t, want, cited, text)
	}
	cited, problems := l.judge(contractPage, "as §5 says, not §11")
	require.Equal(t, []string{"§5", "§11"}, cited)
	require.Equal(t, []string{"the contract has no §11"}, problems)
	lines := prose("x.go", []byte("package x\n\nvar D5 = I3 // design D6\n/* I1\nI2 */\nvar s = `A1\nA2`\n"))
	require.Equal(t, []line{{3, "// design D6"}, {4, "/* I1"}, {5, "I2 */"}, {6, "`A1"}, {7, "A2`"}}, lines)
}
