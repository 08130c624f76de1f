package code_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/code"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func TestDeclarations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source string
		want   []string
	}{
		"Go": {"package a\n\n// F does.\nfunc F() {\n\tx := 1\n\n\treturn\n}\n\nvar (\n\ta = 1\n\n)\n", []string{
			"c package a", "c // F does.\nfunc F() {\n\tx := 1\n\n\treturn\n}", "c var (\n\ta = 1\n\n)",
		}},
		"Python": {"import os\r\n\r\nclass A:\r\n    def f(self):\r\n        pass\r\n\r\n    def g(self): # 中文\r\n        pass\r\n\r\nprint(1)", []string{
			"c import os", "c class A:\n    def f(self):\n        pass\n\n    def g(self): # 中文\n        pass", "c print(1)",
		}},
		"Ruby":          {"def a\n  1\n\nend\n\ndef b\nend", []string{"c def a\n  1\n\nend", "c def b\nend"}},
		"an empty file": {"\n\n", nil},
		"its beginning": {"\n\n  indented\n\nx", []string{"c   indented", "c x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, code.Read, document.TypeCode, []byte(c.source), c.want...)
		})
	}
}

// A class is cut between its methods, a long method at its outermost empty lines.
func TestLargeDeclarationsAreCutAtTheirOutermostEmptyLines(t *testing.T) {
	t.Parallel()
	method := func(name string, lines int) string {
		return "    void " + name + "() {\n" + strings.Repeat("        call();\n\n        if (a) {\n            b();\n\n            c();\n        }\n", lines) + "    }\n"
	}
	source := "class A {\n\n" + method("one", 10) + "\n" + method("two", 10) + "\n" + method("three", 60) + "\n}\n"
	_, blocks, err := extracttest.ReadBytes(code.Read, []byte(source), document.TypeCode)
	require.NoError(t, err)
	require.Equal(t, "class A {", blocks[0].Text)
	require.Equal(t, strings.TrimRight(method("one", 10), "\n"), blocks[1].Text)
	require.Equal(t, strings.TrimRight(method("two", 10), "\n"), blocks[2].Text)
	for _, b := range blocks[3:] {
		require.Less(t, len(b.Text), 2<<10)
		require.NotContains(t, b.Text[:9], "         ", "cut inside of a block of the method")
	}
	require.Equal(t, withoutSpace(source), withoutSpace(extracttest.Joined(blocks)))
}

func withoutSpace(s string) string { return strings.Join(strings.Fields(s), "") }

func TestLongFilesAndLinesAreHeldInParts(t *testing.T) {
	t.Parallel()
	for _, source := range []string{strings.Repeat("  x = 1; y = '持久化'\n", 20_000), strings.Repeat("词", 100_000), strings.Repeat(" \n", 100_000) + "x"} {
		_, blocks, err := extracttest.ReadBytes(code.Read, []byte(source), document.TypeCode)
		require.NoError(t, err)
		text := extracttest.Joined(blocks)
		require.NotContains(t, text, "\uFFFD")
		require.True(t, withoutSpace(source) == withoutSpace(text))
	}
}

func FuzzCode(f *testing.F) {
	f.Add([]byte("package a\n\nfunc b() {\n\n\tc()\n}\n"))
	extracttest.FuzzReader(f, code.Read, document.TypeCode, ".py", ".go")
}
