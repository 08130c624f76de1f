package chart

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install" // its defaults
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install" // its defaults
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // its defaults
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install" // its defaults
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install" // its defaults
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// strict refuses unknown and doubled fields, as `kubectl apply --validate=strict` does.
var strict = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// decode reads one manifest strictly into its versioned type.
func decode(manifest string) (runtime.Object, error) {
	if strings.Contains(manifest, "\nkind: PodMonitor\n") { // of the Prometheus operator: no part of Kubernetes
		monitor := &podMonitor{}
		return monitor, yaml.UnmarshalStrict([]byte(manifest), monitor)
	}
	if strings.Contains(manifest, "\nkind: PrometheusRule\n") {
		rule := &prometheusRule{}
		return rule, yaml.UnmarshalStrict([]byte(manifest), rule)
	}
	obj, _, err := strict.Decode([]byte(manifest), nil, nil)
	return obj, err
}

// podMonitor has the fields of the Prometheus operator's PodMonitor that the chart uses, by its CRD of monitoring.coreos.com/v1.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodTargetLabels     []string             `json:"podTargetLabels"`
		PodMetricsEndpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (m *podMonitor) DeepCopyObject() runtime.Object {
	other := *m
	m.ObjectMeta.DeepCopyInto(&other.ObjectMeta)
	m.Spec.Selector.DeepCopyInto(&other.Spec.Selector)
	return &other
}

// prometheusRule is the Prometheus operator's PrometheusRule. Its groups are those of a rule file, which is validated as one.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Groups []any `json:"groups"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (r *prometheusRule) DeepCopyObject() runtime.Object {
	other := *r
	r.ObjectMeta.DeepCopyInto(&other.ObjectMeta)
	other.Spec.Groups = slices.Clone(r.Spec.Groups)
	return &other
}

// validate judges an object with the API server's own rules, after its own defaults.
func validate(versioned runtime.Object) error {
	if m, ok := versioned.(*podMonitor); ok {
		return metav1validation.ValidateLabelSelector(&m.Spec.Selector, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("spec", "selector")).ToAggregate()
	}
	if _, ok := versioned.(*prometheusRule); ok {
		return nil
	}
	obj := versioned.DeepCopyObject()
	legacyscheme.Scheme.Default(obj)
	group := obj.GetObjectKind().GroupVersionKind().Group
	internal, err := legacyscheme.Scheme.ConvertToVersion(obj, schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal})
	if err != nil {
		return fmt.Errorf("convert: %w", err)
	}
	var errs field.ErrorList
	switch o := internal.(type) {
	case *apps.Deployment:
		errs = appsvalidation.ValidateDeployment(o, corevalidation.PodValidationOptions{})
	case *batch.Job:
		// The server makes the selector of a Job whose author gives none.
		o.Spec.Selector = &metav1.LabelSelector{MatchLabels: o.Spec.Template.Labels}
		manual := true
		o.Spec.ManualSelector = &manual
		errs = batchvalidation.ValidateJobCreate(o, batchvalidation.JobValidationOptions{})
	case *core.Service:
		errs = corevalidation.ValidateServiceCreate(o)
	case *core.Secret:
		errs = corevalidation.ValidateSecret(o)
	case *core.ConfigMap:
		errs = corevalidation.ValidateConfigMap(o)
	case *core.ServiceAccount:
		errs = corevalidation.ValidateServiceAccount(o)
	case *core.PersistentVolumeClaim:
		errs = corevalidation.ValidatePersistentVolumeClaim(o, corevalidation.PersistentVolumeClaimSpecValidationOptions{})
	case *networking.Ingress:
		errs = networkingvalidation.ValidateIngressCreate(o)
	case *policy.PodDisruptionBudget:
		errs = policyvalidation.ValidatePodDisruptionBudget(o, policyvalidation.PodDisruptionBudgetValidationOptions{})
	default:
		return fmt.Errorf("nothing here judges a %T", internal)
	}
	return errs.ToAggregate()
}

// podOf is the pod that an object makes; nil: none.
func podOf(obj runtime.Object) *corev1.PodTemplateSpec {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	default:
		return nil
	}
}

// restricted judges a pod by the restricted Pod Security Standard in its newest version.
func restricted(pod *corev1.PodTemplateSpec) error {
	checks, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	result := podsecurity.AggregateCheckResults(checks.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
	if !result.Allowed {
		return fmt.Errorf("not restricted: %s", result.ForbiddenDetail())
	}
	return nil
}
