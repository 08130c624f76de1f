package taskstate_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/taskstate"
)

func TestFailuresWithTheSameCauseAreOneGroup(t *testing.T) {
	for pattern, texts := range map[string][]string{
		"embed batch <n>: POST <url>: dial tcp <n>: connect: connection refused": {
			"embed batch 3/12: POST http://127.0.0.1:65530/v1/embeddings: dial tcp 127.0.0.1:65530: connect: connection refused",
			"embed batch 1/1: POST https://models.internal:8443/v1/embeddings?k=2: dial tcp 10.1.2.3:8443: connect:  connection refused",
		},
		"read document <id>: page <n>: unexpected EOF": {
			"read document 0198f6a2-5b7c-7d3e-8f00-112233445566: page 7: unexpected EOF",
			"read document 0198F6A2-5B7C-7D3E-8F00-aaaaaaaaaaaa: page 1024: unexpected EOF",
		},
		"open <path>: no such file or directory": {
			"open /var/lib/millweir/uploads/a.pdf: no such file or directory",
			`open C:\data\b: no such file or directory`,
		},
		"lookup <name>: no such host": {"lookup chroma.prod.svc.cluster.local: no such host", "lookup chroma-2.svc:8000: no such host"},
		"model <text> can't be used; don't retry": {
			`model "bge-m3" can't be used; don't retry`, "model `e5` can't be used; don't retry", "model 'x y' can't be used; don't retry",
		},
		"sheet <id> has no rows":   {"sheet Q3 has no rows", "sheet q4b has no rows"},
		"dial tcp <name>: refused": {"dial tcp [::1]:80: refused", "dial tcp [fe80::1%eth0]:8443: refused"},
		"":                         {"", "  "},
	} {
		for _, text := range texts {
			if got := taskstate.CauseOf("X", text); got != (taskstate.Cause{Code: "X", Pattern: pattern}) {
				t.Errorf("%q has the pattern %q, want %q", text, got.Pattern, pattern)
			}
		}
	}
	groups := map[string]bool{}
	for _, c := range []taskstate.Cause{{}, {Code: "A"}, {Code: "B"}, {Pattern: "A"}, {Code: "A", Pattern: "A"}} {
		if len(c.Group()) != taskstate.GroupLength || groups[c.Group()] {
			t.Errorf("%+v is in group %s", c, c.Group())
		}
		groups[c.Group()] = true
	}
}

func FuzzCause(f *testing.F) {
	for _, seed := range []string{"", "a 1", "\xff/x", `"`, strings.Repeat("é", 2000), "a://", "[:]", "'", "x\x00y", "⅓ ٣", "1.2.3:4/5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := taskstate.CauseOf("", text).Pattern
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > 200 {
			t.Fatalf("%q is no text of at most 200 characters", got)
		}
		if strings.ContainsFunc(got, unicode.IsDigit) {
			t.Fatalf("%q has numbers, which differ from one failure to the next", got)
		}
	})
}
