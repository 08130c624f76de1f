package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const (
	minimal   = "existingSecret: mill-settings\n"
	extraName = "HTTPS_PROXY"
	bare      = minimal + `
migrations: {enabled: false}
podDisruptionBudget: {enabled: false}
serviceAccount: {create: false}
uploads: {existingClaim: mine}
`
	kafka     = minimal + "queue: kafka\nenv: {KAFKA_BOOTSTRAP_SERVERS: \"kafka:9092\"}\n"
	bothRoads = kafka + "services: {stream-worker: {enabled: true}, stream-mirror: {enabled: true}, rehydrator: {enabled: true}, telegram-gateway: {enabled: true, env: {TELEGRAM_CHATS: \"1=anna\"}}}\nkafka: {init: {enabled: true}}\n" // all services, both Jobs

	withWorkflows = bothRoads + "workflowsSecret: mine\n"
	withCA        = bothRoads + "caConfigMap: authorities\n"
)

// sets are the values that the chart is rendered with, by name.
func sets(t *testing.T) map[string]string {
	return map[string]string{"redis": minimal, "kafka": kafka, "both": bothRoads, "bare": bare, "full": fullValues(t), "workflows": withWorkflows, "ca": withCA}
}

// fullValues uses everything: all services, every setting at a value that it takes, a Secret and a claim of its own.
func fullValues(t *testing.T) string {
	t.Helper()
	env, secrets, all := map[string]any{"OTEL_SERVICE_NAME": "mill"}, map[string]any{}, map[string]any{}
	for service, settings := range known {
		own := map[string]any{}
		for _, s := range settings {
			switch {
			case s.Kind() != KindPlain:
				secrets[s.Name] = sample(s)
			case settable(s):
				own[s.Name] = sample(s)
				env[s.Name] = sample(s)
			}
		}
		all[service] = map[string]any{
			"enabled": true, "env": own, "podAnnotations": map[string]string{"a/b": "c"}, "podLabels": map[string]string{"team": "x"},
			"nodeSelector": map[string]string{"disk": "fast"}, "tolerations": []any{map[string]string{"key": "k", "operator": "Exists"}},
		}
	}
	values, err := yaml.Marshal(map[string]any{
		"env": env, "services": all, "secret": map[string]any{"create": true, "values": secrets},
		"extraEnv":         []any{map[string]string{"name": extraName, "value": "http://proxy:3128"}},
		"imagePullSecrets": []any{map[string]string{"name": "pull"}},
		"image":            map[string]string{"tag": "1.2.3"},
		"ingress": map[string]any{
			"enabled": true, "className": "nginx", "host": "mill.example.org", "tlsSecret": "mill-tls",
			"annotations": map[string]string{"nginx.ingress.kubernetes.io/proxy-body-size": "0"},
		},
		"uploads": map[string]any{"storageClassName": "nfs", "size": "1Ti"},
		"metrics": map[string]any{"podMonitor": map[string]any{"enabled": true, "labels": map[string]string{"release": "prom"}, "interval": "15s"}, "rules": map[string]any{"enabled": true, "labels": map[string]string{"release": "prom"}},
			"dashboard": map[string]any{"enabled": true}},
		"kafka": map[string]any{"init": map[string]any{"enabled": true, "partitions": 24, "replication": 3, "retention": "168h"}},
	})
	require.NoError(t, err)
	return string(values)
}

// sample is a value that a setting takes: its default, or one of its kind.
func sample(s Setting) any {
	if value, ok := map[string]string{
		"TRUSTED_PROXIES": "10.0.0.0/8", "INGEST_URL_NETWORKS": "10.0.0.0/8", "JWKS_URL": "https://login.example.org/keys",
		"OIDC_ISSUER": "https://login.example.org", "OIDC_REDIRECT_URL": "https://docs.example.org/console/login/callback",
		"TELEGRAM_CHATS": "1=anna,-2=team", "TELEGRAM_WEBHOOK_URL": "https://bot.example.org/hook",
		"KAFKA_BOOTSTRAP_SERVERS": "kafka-0:9092,kafka-1:9092", "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "OTEL_UI_URL": "https://traces.example.org/{traceId}",
	}[s.Name]; ok {
		return value
	}
	switch value := s.Default; {
	case s.Kind() != KindPlain:
		return "a-" + strings.ToLower(s.Name)
	case value == "":
		return "x"
	default:
		if number := json.Number(value); !strings.ContainsAny(value, ".eE") {
			if n, err := number.Int64(); err == nil {
				return n
			}
		}
		return value
	}
}

// parse decodes all manifests strictly.
func parse(t *testing.T, r Rendered) []runtime.Object {
	t.Helper()
	all := make([]runtime.Object, 0, len(r.Manifests))
	for _, m := range r.Manifests {
		obj, err := decode(m)
		require.NoError(t, err, m)
		all = append(all, obj)
	}
	return all
}

// objects renders and decodes.
func objects(t *testing.T, release, values string, set ...string) []runtime.Object {
	t.Helper()
	r, err := render(release, values, set...)
	require.NoError(t, err)
	return parse(t, r)
}

// id names an object.
func id(t *testing.T, obj runtime.Object) string {
	t.Helper()
	m, err := meta.Accessor(obj)
	require.NoError(t, err)
	return obj.GetObjectKind().GroupVersionKind().Kind + "/" + m.GetName()
}

func ids(t *testing.T, all []runtime.Object) []string {
	t.Helper()
	var names []string
	for _, obj := range all {
		names = append(names, id(t, obj))
	}
	return names
}

// deployment finds a service's one.
func deployment(t *testing.T, all []runtime.Object, service string) *appsv1.Deployment {
	t.Helper()
	for _, obj := range all {
		if d, ok := obj.(*appsv1.Deployment); ok && d.Spec.Template.Spec.Containers[0].Name == service {
			return d
		}
	}
	require.Fail(t, "no Deployment of "+service)
	return nil
}

func text(v any) string { return fmt.Sprint(v) }

// TestLint is helm's own opinion.
func TestLint(t *testing.T) {
	for name, values := range sets(t) {
		given := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(values), &given))
		linter := lint.AllWithKubeVersion(folder, given, "mill", &chartutil.KubeVersion{Version: kubernetes, Major: "1", Minor: "37"})
		for _, m := range linter.Messages {
			if m.Severity > support.InfoSev {
				require.Fail(t, m.Error(), name)
			}
		}
	}
}

// TestManifestsAreValid: the API server would take every object, and a restricted namespace every pod.
func TestManifestsAreValid(t *testing.T) {
	for name, values := range sets(t) {
		for _, release := range []string{"m", "millweir", strings.Repeat("long-", 10) + "rel"} {
			r, err := render(release, values)
			require.NoError(t, err, name)
			require.NotEmpty(t, r.Notes)
			if *outDir != "" && release == "millweir" {
				require.NoError(t, os.MkdirAll(*outDir, 0o755))
				all := "---\n" + strings.Join(r.Manifests, "\n---\n") + "\n"
				require.NoError(t, os.WriteFile(filepath.Join(*outDir, name+".yaml"), []byte(all), 0o644))
			}
			all := parse(t, r)
			for _, obj := range all {
				require.NoError(t, validate(obj), "%s %s", name, id(t, obj))
				m, err := meta.Accessor(obj)
				require.NoError(t, err)
				require.Equal(t, "mill", m.GetNamespace(), id(t, obj))
				if pod := podOf(obj); pod != nil {
					require.NoError(t, restricted(pod), "%s %s", name, id(t, obj))
					checkContainer(t, pod.Spec)
				}
			}
			names := ids(t, all)
			require.Len(t, names, len(slices.Compact(slices.Sorted(slices.Values(names)))), "two objects of one name: %v", names)
		}
	}
}

// checkContainer: what the restricted standard does not ask for.
func checkContainer(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	require.False(t, *pod.AutomountServiceAccountToken)
	require.NotEmpty(t, pod.ServiceAccountName)
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(t, c.Resources.Limits.Memory().IsZero(), "a limit of memory")
	require.False(t, c.Resources.Requests.Cpu().IsZero(), "a request of CPU")
	seen := map[string]bool{}
	for _, v := range c.Env {
		require.False(t, seen[v.Name], "%s is set twice", v.Name)
		seen[v.Name] = true
	}
}

// TestValidationFinds: the judges above see what they are there for.
func TestValidationFinds(t *testing.T) {
	r, err := render("mill", minimal)
	require.NoError(t, err)
	good := r.Manifests[slices.IndexFunc(r.Manifests, func(m string) bool { return strings.Contains(m, "kind: Deployment") })]
	judge := func(old, text string) error {
		require.Contains(t, good, old)
		obj, err := decode(strings.Replace(good, old, text, 1))
		if err != nil {
			return err
		}
		if err := validate(obj); err != nil {
			return err
		}
		return restricted(podOf(obj))
	}
	require.NoError(t, judge("kind: Deployment", "kind: Deployment"))
	require.ErrorContains(t, judge("replicas:", "replica:"), `unknown field "spec.replica"`)
	require.ErrorContains(t, judge("path: /healthz, port: operator", "path: /healthz, port: 99999"), "must be between 1 and 65535")
	require.ErrorContains(t, judge("name: tmp, mountPath", "name: tpm, mountPath"), "Not found")
	require.ErrorContains(t, judge("runAsNonRoot: true", "runAsNonRoot: false"), "runAsNonRoot")
	require.ErrorContains(t, judge("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"), "allowPrivilegeEscalation")
}

// TestOneServiceAlone: values of one service change its Deployment and nothing else.
func TestOneServiceAlone(t *testing.T) {
	base := fullValues(t)
	before := objects(t, "mill", base)
	for _, service := range slices.Sorted(maps.Keys(known)) {
		for what, set := range map[string]string{
			"replicas":  "replicas=7",
			"resources": "resources.limits.memory=3Gi",
			"env":       "env.LOG_LEVEL=debug",
			"image":     "image=registry/other:1",
		} {
			after := objects(t, "mill", base, "services."+service+"."+set)
			var changed []string
			for i := range before {
				if require.Equal(t, id(t, before[i]), id(t, after[i])); !reflect.DeepEqual(before[i], after[i]) {
					changed = append(changed, id(t, before[i]))
				}
			}
			require.Equal(t, []string{"Deployment/mill-millweir-" + service}, changed, what)
		}
		d := deployment(t, objects(t, "mill", base, "services."+service+".replicas=7"), service)
		require.EqualValues(t, 7, *d.Spec.Replicas)
		*d.Spec.Replicas = *deployment(t, before, service).Spec.Replicas
		require.Equal(t, deployment(t, before, service), d, "replicas alone")
	}
}

// Certificates of one's own are mounted into every pod, the Jobs' too, and in no other way than beside the public ones.
func TestAuthoritiesAreMountedEverywhere(t *testing.T) {
	for values, want := range map[string]bool{withCA: true, bothRoads: false} {
		pods := 0
		for _, obj := range objects(t, "mill", values) {
			var spec corev1.PodSpec
			switch o := obj.(type) {
			case *appsv1.Deployment:
				spec = o.Spec.Template.Spec
			case *batchv1.Job:
				spec = o.Spec.Template.Spec
			default:
				continue
			}
			pods++
			var told, mounted, volume bool
			for _, e := range spec.Containers[0].Env {
				require.NotEqual(t, "SSL_CERT_FILE", e.Name, "it would take the public ones away")
				told = told || e.Name == "SSL_CERT_DIR" && e.Value == "/ca"
			}
			for _, m := range spec.Containers[0].VolumeMounts {
				mounted = mounted || m.MountPath == "/ca" && m.Name == "ca" && m.ReadOnly
			}
			for _, v := range spec.Volumes {
				volume = volume || v.Name == "ca" && v.ConfigMap.Name == "authorities"
			}
			require.Equal(t, []bool{want, want, want}, []bool{told, mounted, volume})
		}
		require.Equal(t, len(known)+2, pods)
	}
}

// A Secret with workflows is mounted where they are read, under the name that the service is told.
func TestWorkflowsAreMountedWhereTheyAreRead(t *testing.T) {
	all := objects(t, "mill", withWorkflows)
	for service, settings := range known {
		reads := slices.ContainsFunc(settings, func(s Setting) bool { return s.Name == "WORKFLOWS_FILE" })
		pod := deployment(t, all, service).Spec.Template.Spec
		var told, mounted, volume string
		for _, e := range pod.Containers[0].Env {
			if e.Name == "WORKFLOWS_FILE" {
				told = e.Value
			}
		}
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.Name == "workflows" {
				require.True(t, m.ReadOnly)
				mounted = m.MountPath + "/workflows.yaml"
			}
		}
		for _, v := range pod.Volumes {
			if v.Name == "workflows" {
				volume = v.Secret.SecretName
			}
		}
		want := []string{"", "", ""}
		if reads {
			want = []string{"/workflows/workflows.yaml", "/workflows/workflows.yaml", "mine"}
		}
		require.Equal(t, want, []string{told, mounted, volume}, service)
	}
}
