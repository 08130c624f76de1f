package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestQueueDecidesWhatRuns: auto services follow the queue; true and false are final.
func TestQueueDecidesWhatRuns(t *testing.T) {
	deployments := func(values string, set ...string) []string {
		var names []string
		for _, name := range ids(t, objects(t, "millweir", values, set...)) {
			if short, ok := strings.CutPrefix(name, "Deployment/millweir-"); ok {
				names = append(names, short)
			}
		}
		return names
	}
	require.Equal(t, []string{"ingest-api", "reclaimer", "stream-worker"}, deployments(minimal))
	require.Equal(t, []string{"ingest-api", "kafka-consumer", "outbox-relay", "reclaimer"}, deployments(kafka))
	require.Equal(t, []string{"ingest-api", "kafka-consumer", "outbox-relay", "stream-worker"},
		deployments(kafka, "services.stream-worker.enabled=true", "services.reclaimer.enabled=false"))
}

// TestWorkersKeepTheirRoad: both may run at once, and each refuses to start on the other's queue.
func TestWorkersKeepTheirRoad(t *testing.T) {
	for _, queue := range []string{"redis", "kafka"} {
		all := objects(t, "mill", bothRoads, "queue="+queue, "services.kafka-consumer.enabled=true")
		for service, want := range map[string]string{"ingest-api": queue, "reclaimer": queue, "stream-worker": "redis", "kafka-consumer": "kafka"} {
			require.Contains(t, deployment(t, all, service).Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "INGEST_QUEUE", Value: want}, service)
		}
	}
}

// TestVectorStoreIsTheOneOfValues: every service that reads it gets the same.
func TestVectorStoreIsTheOneOfValues(t *testing.T) {
	for _, store := range []string{"chroma", "pgvector", "qdrant"} {
		all := objects(t, "mill", bothRoads, "vectorStore="+store)
		for _, service := range []string{"ingest-api", "reclaimer", "stream-worker"} {
			require.Contains(t, deployment(t, all, service).Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "VECTOR_STORE", Value: store}, service)
		}
	}
}

// TestAutoscalerOwnsTheNumber: without a number of replicas a Deployment has none, so that an upgrade sets nothing back.
func TestAutoscalerOwnsTheNumber(t *testing.T) {
	all := objects(t, "mill", minimal+"services: {stream-worker: {replicas: null}}\n")
	require.Nil(t, deployment(t, all, "stream-worker").Spec.Replicas)
	require.EqualValues(t, 2, *deployment(t, all, "ingest-api").Spec.Replicas)
	require.Zero(t, *deployment(t, objects(t, "mill", minimal, "services.stream-worker.replicas=0"), "stream-worker").Spec.Replicas)
}

// TestEveryServiceIsScraped: by annotations, and by the PodMonitor, which selects all services and no Job.
func TestEveryServiceIsScraped(t *testing.T) {
	all := objects(t, "mill", bothRoads, "metrics.podMonitor.enabled=true")
	i := slices.IndexFunc(all, func(o runtime.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == "PodMonitor" })
	require.GreaterOrEqual(t, i, 0)
	monitor, ok := all[i].(*podMonitor)
	require.True(t, ok)
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	require.Equal(t, "/metrics", endpoint.Path)
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	require.NoError(t, err)
	scraped := map[string]bool{}
	for _, obj := range all {
		pod := podOf(obj)
		if pod == nil {
			continue
		}
		c := pod.Spec.Containers[0]
		port := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == endpoint.Port })
		if _, job := obj.(*batchv1.Job); job {
			require.Empty(t, pod.Annotations, c.Name)
			require.Negative(t, port, c.Name)
			continue
		}
		require.True(t, selector.Matches(labels.Set(pod.Labels)), c.Name)
		require.GreaterOrEqual(t, port, 0, c.Name)
		require.Equal(t, map[string]string{
			"prometheus.io/scrape": "true", "prometheus.io/path": endpoint.Path, "prometheus.io/port": text(c.Ports[port].ContainerPort),
		}, pod.Annotations, c.Name)
		scraped[c.Name] = true
	}
	require.Len(t, scraped, len(known))
	bare := deployment(t, objects(t, "mill", minimal, "metrics.annotations=false"), "reclaimer")
	require.Empty(t, bare.Spec.Template.Annotations)
}

// TestStopGrace: a pod has longer to end than the work in it.
func TestStopGrace(t *testing.T) {
	grace := func(service string, set ...string) int64 {
		return *deployment(t, objects(t, "m", minimal, set...), service).Spec.Template.Spec.TerminationGracePeriodSeconds
	}
	require.EqualValues(t, 10+20, grace("stream-worker"))
	require.EqualValues(t, 91+20, grace("stream-worker", "env.INGEST_STOP_GRACE_MS=90500"))
	require.EqualValues(t, 30+20, grace("stream-worker", "env.INGEST_STOP_GRACE_MS=90500", "services.stream-worker.env.INGEST_STOP_GRACE_MS=30000"))
	require.EqualValues(t, 3600+20, grace("reclaimer", "env.INGEST_STOP_GRACE_MS=3600000"))
	require.EqualValues(t, 0+20, grace("reclaimer", "env.INGEST_STOP_GRACE_MS=0"))
	require.EqualValues(t, 5+20+20, grace("ingest-api"))
	require.EqualValues(t, 5+60+20, grace("ingest-api", "services.ingest-api.env.SHUTDOWN_GRACE=60s"))
	for service, settings := range known { // the defaults that the template repeats
		for _, s := range settings {
			if want, ok := map[string]string{"INGEST_STOP_GRACE_MS": "10000", "SHUTDOWN_GRACE": "20s"}[s.Name]; ok {
				require.Equal(t, want, s.Default, service)
			}
		}
	}
}

// TestValuesAreRefused: what cannot work is said before anything is installed.
func TestValuesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		set    []string
		want   string
	}{
		"no secret":                  {"", nil, "existingSecret names the Secret"},
		"two secrets":                {minimal, []string{"secret.create=true"}, "one of the two"},
		"a slip in a name":           {minimal, []string{"env.INGEST_LEASE_SECONDS=3"}, "INGEST_LEASE_SECONDS"},
		"another service's setting":  {minimal, []string{"services.stream-worker.env.SHUTDOWN_GRACE=3s"}, "SHUTDOWN_GRACE"},
		"what the chart sets":        {minimal, []string{"env.OPERATOR_ADDR=:1"}, "OPERATOR_ADDR"},
		"a secret in the open":       {minimal, []string{"env.JWT_SECRET=x"}, "JWT_SECRET"},
		"an unknown secret":          {"secret: {create: true, values: {MYSQL_DNS: x}}", nil, "MYSQL_DNS"},
		"out of range":               {minimal, []string{"env.INGEST_REDIS_MAX_ATTEMPTS=0"}, "minimum"},
		"not one of the values":      {minimal, []string{"env.LOG_LEVEL=loud"}, "one of"},
		"a duration of two units":    {minimal, []string{"env.SHUTDOWN_GRACE=1m30s"}, "pattern"},
		"an unknown queue":           {minimal, []string{"queue=rabbit"}, "queue"},
		"the embedded vector store":  {minimal, []string{"vectorStore=embedded"}, "vectorStore"},
		"no partitions":              {minimal, []string{"kafka.init.partitions=0"}, "partitions"},
		"a retention in days":        {minimal, []string{"kafka.init.retention=7d"}, "retention"},
		"an unknown key":             {minimal, []string{"services.reclaimer.replica=2"}, "replica"},
		"an unknown service":         {minimal, []string{"services.frob.replicas=2"}, "frob"},
		"a Service for a worker":     {minimal, []string{"services.reclaimer.service.port=2"}, "service"},
		"a privileged operator port": {minimal, []string{"services.reclaimer.operatorPort=80"}, "minimum"},
	} {
		_, err := render("mill", tc.values, tc.set...)
		require.ErrorContains(t, err, tc.want, name)
	}
}

// jobs are the Jobs of a rendering, by their containers' names.
func jobs(all []runtime.Object) map[string]*batchv1.Job {
	found := map[string]*batchv1.Job{}
	for _, obj := range all {
		if job, ok := obj.(*batchv1.Job); ok {
			found[job.Spec.Template.Spec.Containers[0].Name] = job
		}
	}
	return found
}

// TestJobsComeFirst: each Job is a hook, and all that it needs is there before the release is.
func TestJobsComeFirst(t *testing.T) {
	require.Equal(t, []string{"migrate"}, slices.Collect(maps.Keys(jobs(objects(t, "mill", kafka)))), "topics are made on demand")
	for name, want := range map[string]struct {
		args    string // in bothRoads
		secrets []string
	}{
		"migrate":    {"migrate up", []string{"MYSQL_DSN", "DATABASE_URL"}},
		"kafka-init": {"kafka init --partitions 12 --replication 0", []string{"KAFKA_SASL_PASSWORD"}},
	} {
		for _, values := range []string{bothRoads, fullValues(t)} {
			all := objects(t, "mill", values)
			job := jobs(all)[name]
			require.NotNil(t, job, name)
			require.Equal(t, "pre-install,pre-upgrade", job.Annotations["helm.sh/hook"])
			pod := job.Spec.Template.Spec
			require.Equal(t, "default", pod.ServiceAccountName, "the release's own is not there yet")
			refs := map[string][]string{}
			for _, v := range pod.Containers[0].Env {
				if v.ValueFrom != nil {
					ref := v.ValueFrom.SecretKeyRef
					refs[ref.Name] = append(refs[ref.Name], ref.Key)
				}
			}
			if values == bothRoads {
				require.Equal(t, map[string][]string{"mill-settings": want.secrets}, refs)
				require.Equal(t, want.args, strings.Join(pod.Containers[0].Args, " "))
				continue
			}
			require.Equal(t, map[string][]string{"mill-millweir-" + name: want.secrets}, refs)
			i := slices.IndexFunc(all, func(o runtime.Object) bool { return id(t, o) == "Secret/mill-millweir-"+name })
			require.GreaterOrEqual(t, i, 0)
			hook, ok := all[i].(*corev1.Secret)
			require.True(t, ok)
			require.Equal(t, "pre-install,pre-upgrade", hook.Annotations["helm.sh/hook"])
			require.Equal(t, "-5", hook.Annotations["helm.sh/hook-weight"])
			require.ElementsMatch(t, want.secrets, slices.Collect(maps.Keys(hook.StringData)), "what the Job needs, nothing else")
		}
	}
}

// TestMigrationsMayBeAnotherUsers: the services need no right to change the schema.
func TestMigrationsMayBeAnotherUsers(t *testing.T) {
	for _, values := range []string{minimal, fullValues(t)} {
		all := objects(t, "mill", values, "migrations.existingSecret=schema-owner")
		for _, v := range jobs(all)["migrate"].Spec.Template.Spec.Containers[0].Env {
			if v.ValueFrom != nil {
				require.Equal(t, "schema-owner", v.ValueFrom.SecretKeyRef.Name)
			}
		}
		require.False(t, slices.ContainsFunc(all, func(o runtime.Object) bool { return id(t, o) == "Secret/mill-millweir-migrate" }))
	}
}

// TestTopicsAreSomebodysWork: who does not have them made is told what must be there.
func TestTopicsAreSomebodysWork(t *testing.T) {
	for values, told := range map[string]bool{minimal: false, kafka: true, bothRoads: false} {
		r, err := render("mill", values, "services.outbox-relay.env.INGEST_KAFKA_TOPIC=mine")
		require.NoError(t, err)
		require.Equal(t, told, strings.Contains(r.Notes, "mine and mine-dlq must be there"), r.Notes)
	}
}

// TestUploadsOutliveTheRelease: the folder holds what was accepted.
func TestUploadsOutliveTheRelease(t *testing.T) {
	var claims []*corev1.PersistentVolumeClaim
	for _, obj := range objects(t, "mill", minimal) {
		if c, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			claims = append(claims, c)
		}
	}
	require.Len(t, claims, 1)
	require.Equal(t, "keep", claims[0].Annotations["helm.sh/resource-policy"])
	require.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, claims[0].Spec.AccessModes)
	r, err := render("mill", minimal, "uploads.accessModes={ReadWriteOnce}")
	require.NoError(t, err)
	require.Contains(t, r.Notes, "not ReadWriteMany")
}

// TestCreatedSecretRestartsPods: a changed Secret changes every pod's template.
func TestCreatedSecretRestartsPods(t *testing.T) {
	sum := func(dsn string) string {
		all := objects(t, "mill", "secret: {create: true, values: {MYSQL_DSN: "+dsn+"}}")
		return deployment(t, all, "reclaimer").Spec.Template.Annotations["checksum/secret"]
	}
	require.NotEqual(t, sum("a"), sum("b"))
	require.Equal(t, sum("a"), sum("a"))
}
