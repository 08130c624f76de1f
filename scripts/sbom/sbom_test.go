package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

// The test's own binary is a Go binary with modules like any other.
func TestListOfABinary(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = write(dir, self, "v1.2.3")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, filepath.Base(self)+".cdx.json"))
	require.NoError(t, err)
	var list bom
	require.NoError(t, json.Unmarshal(text, &list))
	info, err := buildinfo.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, check(list, info))
	byName := map[string]component{}
	for _, c := range list.Components {
		byName[c.Name] = c
	}
	require.Contains(t, byName, "std")
	const name = "github.com/prometheus/client_golang"
	library := byName[name]
	require.Equal(t, "pkg:golang/"+name+"@"+library.Version, library.PURL)
	require.Equal(t, "millweir:go.sum", library.Properties[0].Name)
	require.Contains(t, library.Properties[0].Value, "h1:")
	require.Equal(t, "pkg:golang/"+ours+"/pkg@v1.2.3", byName[ours+"/pkg"].PURL, "ours have the version of the binary")

	_, err = write(dir, self, "v1.2.3")
	require.NoError(t, err)
	again, err := os.ReadFile(filepath.Join(dir, filepath.Base(self)+".cdx.json"))
	require.NoError(t, err)
	require.Equal(t, string(text), string(again), "the same binary gives the same bytes")
	_, err = write(dir, "sbom_test.go", "")
	require.ErrorContains(t, err, "not a Go binary")
}

func TestReplacedAndLocalModules(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8 X:nodwarf5", Path: ours + "/services/x", Main: debug.Module{Path: ours + "/services/x", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: ours + "/pkg", Version: "v0.0.0", Replace: &debug.Module{Path: "../../pkg"}},
			{Path: "example.org/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v1.0.1", Sum: "h1:x="}},
			{Path: "example.org/b", Version: "v2.0.0+incompatible", Sum: "h1:y="},
		},
	}
	list := describe("x", "v1.2.3+dirty", []byte("binary"), info)
	require.NoError(t, check(list, info))
	found := map[string]component{}
	for _, c := range list.Components {
		found[c.PURL] = c
	}
	require.Contains(t, found, "pkg:golang/std@1.26.8")
	require.Contains(t, found, "pkg:golang/"+ours+"/pkg@v1.2.3%2Bdirty")
	require.Contains(t, found, "pkg:golang/example.org/b@v2.0.0%2Bincompatible")
	fork := found["pkg:golang/example.org/fork@v1.0.1"]
	require.Contains(t, fork.Properties, property{Name: "millweir:replaces", Value: "example.org/a"})
}

// The check must bite: each case breaks one rule of a good list.
func TestCheckBites(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Path: "example.org/x", Main: debug.Module{Path: "example.org/x", Version: "v1.0.0"},
		Deps: []*debug.Module{{Path: "example.org/a", Version: "v1.0.0"}, {Path: "example.org/b", Version: "v1.0.0"}},
	}
	for want, spoil := range map[string]func(*bom){
		"header":                func(b *bom) { b.SerialNumber = "urn:uuid:x" },
		"without its fields":    func(b *bom) { b.Components[0].PURL = "" },
		"two components":        func(b *bom) { b.Components = append(b.Components, b.Components[0]) },
		"which is no component": func(b *bom) { b.Dependencies[0].DependsOn[0] = "x" },
		"is missing":            func(b *bom) { b.Components, b.Dependencies = b.Components[1:], nil },
		"listed as v9.0.0":      func(b *bom) { b.Components[0].Version = "v9.0.0" },
	} {
		list := describe("x", "v1.0.0", nil, info)
		require.NoError(t, check(list, info))
		spoil(&list)
		require.ErrorContains(t, check(list, info), want)
	}
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
