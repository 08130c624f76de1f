package chart

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// folder is the chart.
var folder = filepath.Join(root, "deploy", "charts", "millweir")

// kubernetes is the version that the chart is rendered for: that of the validation which judges it.
const kubernetes = "v1.37.0"

// Rendered is what helm would send to the API server, and what it would tell the operator.
type Rendered struct {
	Manifests []string // one object each, hooks too
	Notes     string
}

// render merges values (YAML) and settings like those of --set into the chart's own, checks them with its schema and renders.
func render(release, values string, set ...string) (Rendered, error) {
	c, err := loader.Load(folder)
	if err != nil {
		return Rendered{}, fmt.Errorf("load the chart: %w", err)
	}
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return Rendered{}, fmt.Errorf("values: %w", err)
	}
	for _, s := range set {
		if err := strvals.ParseInto(s, given); err != nil {
			return Rendered{}, fmt.Errorf("--set %s: %w", s, err)
		}
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = chartutil.KubeVersion{Version: kubernetes, Major: "1", Minor: "37"}
	if !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, kubernetes) {
		return Rendered{}, fmt.Errorf("kubeVersion %s leaves out %s", c.Metadata.KubeVersion, kubernetes)
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: "mill", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, options, caps)
	if err != nil {
		return Rendered{}, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return Rendered{}, err
	}
	var out Rendered
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			out.Notes = files[name]
			continue
		}
		parts := releaseutil.SplitManifests(files[name])
		keys := slices.Collect(maps.Keys(parts))
		slices.SortFunc(keys, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
		for _, k := range keys {
			out.Manifests = append(out.Manifests, parts[k])
		}
	}
	return out, nil
}
