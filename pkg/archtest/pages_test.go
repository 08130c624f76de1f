package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readmeLines is how long the README may be: it is one screen or two, the rest stands in deploy/docs.
const readmeLines = 150

// proseWidth is the longest line of prose in deploy/docs and the README, in characters; tables, code and pictures may be longer.
const proseWidth = 110

// pages are all pages for people, by their path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	written(t, func(path string, text []byte) {
		if filepath.Ext(path) == ".md" {
			out[filepath.ToSlash(path)] = string(text)
		}
	})
	return out
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	silent  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names by which a page's headings are linked to, as GitHub makes them.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		name := strings.ReplaceAll(silent.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		for base, n := name, 1; out[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		out[name] = true
	}
	return out
}

// broken are the links of a page that lead nowhere. Addresses of the web are not followed.
func broken(page, text string, exists func(path string) (text string, ok bool)) (out []string) {
	for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		target, there := text, true
		if file != "" {
			target, there = exists(filepath.Join(filepath.Dir(page), file))
		}
		if !there || anchor != "" && !anchors(target)[anchor] {
			out = append(out, m[1])
		}
	}
	return out
}

// Every link of a page to another file, and to a heading, leads there.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	onDisk := func(path string) (string, bool) {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil || info.IsDir() {
			return "", err == nil
		}
		return source(t, path), true
	}
	all := pages(t)
	require.Greater(t, len(all), 15)
	for page, text := range all {
		require.Empty(t, broken(page, text, onDisk), page)
	}
	one := func(path string) (string, bool) { return "# One, and two\n", path == "docs/b.md" }
	require.Equal(t, []string{"c.md", "b.md#two", "#gone"},
		broken("docs/a.md", "# Here\n[x](b.md) [x](c.md) [x](b.md#one-and-two) [x](b.md#two) [x](#here) [x](#gone) [x](https://x/y)", one))
}

// The README is short, and what is written for people is narrow enough to be read in an editor.
func TestPagesAreShortAndNarrow(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, strings.Count(source(t, "README.md"), "\n"), readmeLines, "README.md: move text to deploy/docs")
	for page, text := range pages(t) {
		if page != "README.md" && !strings.HasPrefix(page, "deploy/docs/") {
			continue
		}
		for _, line := range strings.Split(fenced.ReplaceAllString(text, ""), "\n") {
			if !strings.HasPrefix(strings.TrimSpace(line), "|") && len([]rune(line)) > proseWidth {
				t.Errorf("%s: more than %d characters: %s", page, proseWidth, line)
			}
		}
	}
}
