package chart

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestGeneratedFiles: what the chart knows of settings is what the services say.
func TestGeneratedFiles(t *testing.T) {
	settings, err := settingsFile(known)
	require.NoError(t, err)
	schema, err := schemaFile(known)
	require.NoError(t, err)
	for name, want := range map[string][]byte{"files/settings.yaml": settings, "values.schema.json": schema} {
		path := filepath.Join(folder, name)
		if *update {
			require.NoError(t, os.WriteFile(path, want, 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is old: make chart-settings", name)
	}
}

// TestChartHasEveryService: a folder below services/ with a main.go is a Deployment, and the reverse.
func TestChartHasEveryService(t *testing.T) {
	values, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	require.NoError(t, err)
	var v struct {
		Services map[string]struct{ OperatorPort int }
	}
	require.NoError(t, yaml.Unmarshal(values, &v))
	require.Equal(t, slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(v.Services)))
	for name, settings := range known {
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == "OPERATOR_ADDR" })
		require.GreaterOrEqual(t, i, 0, name)
		_, port, _ := strings.Cut(settings[i].Default, ":")
		require.Equal(t, port, text(v.Services[name].OperatorPort), "%s: the operator's port is its default one", name)
	}
}

// TestNamesAreSettings: with all that values may give, a container has exactly the settings of its service.
func TestNamesAreSettings(t *testing.T) {
	got := map[string][]string{}
	for _, obj := range objects(t, "mill", fullValues(t)) {
		d, ok := obj.(*appsv1.Deployment)
		if !ok {
			continue
		}
		c := d.Spec.Template.Spec.Containers[0]
		for _, v := range c.Env {
			if (!strings.HasPrefix(v.Name, "OTEL_") || v.Name == "OTEL_UI_URL") && v.Name != extraName {
				got[c.Name] = append(got[c.Name], v.Name)
			}
		}
	}
	for service, settings := range known {
		var want []string
		for _, s := range settings {
			if unfit[s.Name] == "" {
				want = append(want, s.Name)
			}
		}
		require.ElementsMatch(t, want, got[service], service)
	}
	require.Len(t, got, len(known))
}

// TestExceptionsAreReal: what the chart leaves out or sets itself is a setting of some service.
func TestExceptionsAreReal(t *testing.T) {
	names := map[string]bool{}
	for _, settings := range known {
		for _, s := range settings {
			names[s.Name] = true
		}
	}
	for _, list := range []map[string]string{byChart, unfit} {
		for name := range list {
			require.True(t, names[name], name)
		}
	}
}

// TestSecretsOnlyFromTheSecret: no secret stands in a manifest, also when the chart makes the Secret.
func TestSecretsOnlyFromTheSecret(t *testing.T) {
	kinds := map[string]Kind{}
	for _, settings := range known {
		for _, s := range settings {
			kinds[s.Name] = s.Kind()
		}
	}
	seen := 0
	for _, obj := range objects(t, "mill", fullValues(t)) {
		pod := podOf(obj)
		if pod == nil {
			continue
		}
		for _, v := range pod.Spec.Containers[0].Env {
			if kinds[v.Name] == KindSecret {
				seen++
				require.Empty(t, v.Value, v.Name)
				require.NotNil(t, v.ValueFrom.SecretKeyRef, v.Name)
			}
		}
	}
	require.Positive(t, seen)
	require.Equal(t, KindSecret, kinds["JWT_SECRET"])
	require.Equal(t, KindAddress, kinds["MYSQL_DSN"])
}

// TestLargeNumbersStayNumbers: YAML gives templates floats, and 1.048576e+08 is no number to a service.
func TestLargeNumbersStayNumbers(t *testing.T) {
	r, err := render("mill", minimal+"env: {UPLOAD_MAX_BYTES: 104857600, LOG_LEVEL: debug}\n")
	require.NoError(t, err)
	api := deployment(t, parse(t, r), "ingest-api")
	require.Contains(t, api.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "UPLOAD_MAX_BYTES", Value: "104857600"})
}

func TestParseHelp(t *testing.T) {
	t.Parallel()
	got, err := parseHelp("VARIABLE  DEFAULT  ALLOWED   MEANING\nA         1        0..2      one, … two\nB                  a secret  three\n\nprose\n")
	require.NoError(t, err)
	require.Equal(t, []Setting{{"A", "1", "0..2", "one, … two"}, {"B", "", "a secret", "three"}}, got)
	_, err = parseHelp("nonsense")
	require.Error(t, err)
}
