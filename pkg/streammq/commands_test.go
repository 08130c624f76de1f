package streammq

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
)

// usedCommands are the commands that scripts and Go code name, as Redis writes them.
func usedCommands(t *testing.T) map[string]string {
	t.Helper()
	used := map[string]string{}
	var files []string
	for _, pattern := range []string{"stream/lua/*.lua", "*.go", "stream/*.go", "internal/*/*.go"} {
		some, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, some, pattern)
		files = append(files, some...)
	}
	inLua := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?`)
	inGo := regexp.MustCompile(`\.B\(\)\.([A-Z]\w+)\(|Arbitrary\("([A-Z]+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "redistest") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range inLua.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			if name == "XGROUP" || name == "XINFO" {
				name += "|" + m[2]
			}
			used[name] = file
		}
		for _, m := range inGo.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "Arbitrary" {
				used[m[2]+builderCommand(m[1])] = file
			}
		}
	}
	return used
}

// builderCommand turns XgroupCreate into XGROUP|CREATE.
func builderCommand(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('|')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// No server of 6.2 is at hand. A newer one tells since when it has each command.
func TestCommandsAreThoseOfRedis62(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutCluster)
	used := usedCommands(t)
	require.Greater(t, len(used), 35, "%v", used)
	for _, node := range r.client.Nodes() {
		for name, file := range used {
			docs, err := node.Do(context.Background(), node.B().Arbitrary("COMMAND", "DOCS", name).Build()).AsMap()
			require.NoError(t, err)
			doc, ok := docs[strings.ToLower(name)]
			require.True(t, ok, "%s: what is %s?", file, name)
			fields, err := doc.AsMap()
			require.NoError(t, err)
			field := fields["since"]
			since, err := field.ToString()
			require.NoError(t, err)
			require.False(t, core.OlderThan("6.2", atoi(t, since, 0), atoi(t, since, 1)), "%s: %s came with %s", file, name, since)
		}
		break
	}
	require.NotContains(t, used, "XAUTOCLAIM", "claims are XPENDING and XCLAIM: it may be renamed away")
}

func atoi(t *testing.T, version string, part int) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Split(version, ".")[part])
	require.NoError(t, err)
	return n
}

// Options that came after 6.2; CLAIM, of 8.4, is for servers that were asked.
func TestScriptsUseNoOptionsAfterRedis62(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("stream/lua/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, file := range scripts {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, option := range []string{"ENTRIESREAD", "'KEEPREF'", "'DELREF'", "'ACKED'", "'IFEQ'", "#!lua"} {
			require.NotContains(t, string(text), option, file)
		}
		require.NotRegexp(t, `'P?EXPIRE'[^)]*'(NX|XX|GT|LT)'`, string(text), file)
		require.NotRegexp(t, `'SET'[^)]*'NX'[^)]*'GET'`, string(text), file)
	}
}
