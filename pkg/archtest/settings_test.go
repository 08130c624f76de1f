package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/process"
)

// Every setting of any service is in process.KnownSettings: all services share one environment,
// and one that does not read a setting must not call it unknown. Every known one is read by somebody.
func TestSettingsAreKnown(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, n := range process.KnownSettings {
		known[n] = true
	}
	read := map[string]bool{}
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			if p.path() == "" {
				continue
			}
			for _, setting := range settingsIn(t, filepath.Join(p.Dir, name)) {
				read[setting] = true
				require.True(t, known[setting], "%s of %s is not in process.KnownSettings", setting, p.path())
			}
		}
	}
	for name := range known {
		// The command line and the test servers read those of their own without a tag.
		require.True(t, read[name] || strings.HasPrefix(name, "MILLWEIR_"), "nobody reads %s", name)
	}
}

// settingsIn are the envconfig tags of a file.
func settingsIn(t *testing.T, path string) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		tag, err := strconv.Unquote(field.Tag.Value)
		require.NoError(t, err)
		if name := reflect.StructTag(tag).Get("envconfig"); name != "" && name != "-" {
			names = append(names, name)
		}
		return true
	})
	return names
}
