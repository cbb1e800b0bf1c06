// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestReplicas(t *testing.T) {
	want := map[string]map[string]int32{
		"default":       {"sandlot-apiserver": 2, "sandlot-controller-manager": 2, "sandlot-etcd": 3},
		"single":        {"sandlot-apiserver": 1, "sandlot-controller-manager": 2},
		"small":         {"sandlot-apiserver": 1, "sandlot-controller-manager": 1},
		"external-etcd": {"sandlot-apiserver": 2, "sandlot-controller-manager": 2},
	}
	for _, overlay := range overlays {
		got := map[string]int32{}
		for name, w := range workloads(render(t, overlay)) {
			got[name] = w.replicas
		}
		if diff := cmp.Diff(want[overlay], got); diff != "" {
			t.Errorf("%s: replicas (-want +got):\n%s", overlay, diff)
		}
	}
}

// Two pods must never use one volume, not even while one follows the other.
func TestSingleHasAVolumeOfItsOwn(t *testing.T) {
	for _, overlay := range []string{"single", "small"} {
		w := workloads(render(t, overlay))["sandlot-apiserver"]
		if kind := w.GetObjectKind().GroupVersionKind().Kind; kind != "StatefulSet" {
			t.Errorf("%s: the API server is a %s", overlay, kind)
		}
	}
}

func TestPodsAreLockedDown(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		ns := get[*corev1.Namespace](objects, namespace)
		if got := ns.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
			t.Errorf("the namespace enforces %q", got)
		}
		for _, w := range workloads(objects) {
			spec := w.template.Spec
			if len(spec.Containers) != 1 {
				t.Fatalf("%s: the test expects one container", w)
			}
			for _, init := range spec.InitContainers {
				checkContainer(t, w.String(), init)
			}
			c := spec.Containers[0]
			checkContainer(t, w.String(), c)
			if c.ReadinessProbe == nil || c.LivenessProbe == nil || c.StartupProbe == nil {
				t.Errorf("%s: a probe is missing", w)
			}
			if token := spec.AutomountServiceAccountToken; token == nil || *token != (w.GetName() != "sandlot-etcd") {
				t.Errorf("%s: service account token: %v", w, token)
			}
			if account := get[*corev1.ServiceAccount](objects, spec.ServiceAccountName); account == nil || account.AutomountServiceAccountToken == nil ||
				*account.AutomountServiceAccountToken {
				t.Errorf("%s: its service account gives its token to every pod", w)
			}
		}
	})
}

// checkContainer looks at what all containers have.
func checkContainer(t *testing.T, where string, c corev1.Container) {
	t.Helper()
	if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Errorf("%s: the root file system of %s can be written to", where, c.Name)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%s: resources of %s are missing: %v", where, c.Name, c.Resources)
	}
	if _, tag, ok := strings.Cut(c.Image, ":"); !ok || tag == "latest" {
		t.Errorf("%s: image %s is not pinned", where, c.Image)
	}
}

// Probes ask for paths that our server serves to anyone (see the tests of
// pkg/apiserver/options), on ports that the container has.
func TestProbes(t *testing.T) {
	paths := map[string][]string{
		"sandlot-apiserver":          {"/livez", "/readyz"},
		"sandlot-controller-manager": {"/healthz", "/readyz"},
		"sandlot-etcd":               {"/livez", "/readyz"},
		gatewayName:                  {"/healthz", "/readyz"},
	}
	each(t, func(t *testing.T, objects manifests) {
		for name, w := range workloads(objects) {
			c := w.template.Spec.Containers[0]
			for kind, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
				containerPort(t, w, probe.HTTPGet.Port.StrVal)
				path, _, _ := strings.Cut(probe.HTTPGet.Path, "?")
				if !slices.Contains(paths[name], path) {
					t.Errorf("%s: the %s probe asks for %s", w, kind, path)
				}
				if tls := probe.HTTPGet.Scheme == corev1.URISchemeHTTPS; tls != (name == "sandlot-apiserver") {
					t.Errorf("%s: the %s probe has scheme %q", w, kind, probe.HTTPGet.Scheme)
				}
			}
		}
	})
}

// Whatever selects pods selects those that it is meant for.
func TestSelectors(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		all := workloads(objects)
		selected := func(selector labels.Selector) []string {
			var names []string
			for name, w := range all {
				if selector.Matches(labels.Set(w.template.Labels)) {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return names
		}
		only := func(what, name string, selector *metav1.LabelSelector) {
			t.Helper()
			s, err := metav1.LabelSelectorAsSelector(selector)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := selected(s); !slices.Equal(got, []string{name}) {
				t.Errorf("%s selects the pods of %q, want those of %s", what, got, name)
			}
		}
		for name, w := range all {
			only(w.String(), name, &metav1.LabelSelector{MatchLabels: w.selector})
			for _, spread := range w.template.Spec.TopologySpreadConstraints {
				only("topology of "+w.String(), name, spread.LabelSelector)
			}
			if w.replicas == 1 {
				continue
			}
			affinity := w.template.Spec.Affinity
			if affinity == nil || affinity.PodAntiAffinity == nil {
				t.Fatalf("%s: its pods may all be on one node", w)
			}
			for _, term := range affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
				only("anti-affinity of "+w.String(), name, term.PodAffinityTerm.LabelSelector)
			}
			for _, term := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				only("anti-affinity of "+w.String(), name, term.LabelSelector)
			}
			budget := get[*policyv1.PodDisruptionBudget](objects, name)
			if budget == nil {
				t.Fatalf("%s has no budget for disruptions", w)
			}
			only("budget of "+w.String(), name, budget.Spec.Selector)
		}
		for _, budget := range of[*policyv1.PodDisruptionBudget](objects) {
			if w, ok := all[budget.Name]; !ok || w.replicas < 2 {
				t.Errorf("PodDisruptionBudget %s is for nothing", budget.Name)
			}
		}
		for _, service := range of[*corev1.Service](objects) {
			if service.Name == restoreName { // TestRestoreNetwork looks at it
				continue
			}
			only("Service "+service.Name, service.Name, &metav1.LabelSelector{MatchLabels: service.Spec.Selector})
			for _, port := range service.Spec.Ports {
				if port.TargetPort.StrVal != "" {
					containerPort(t, all[service.Name], port.TargetPort.StrVal)
				}
			}
		}
		checkNetworkPolicies(t, objects, only)
	})
}

// etcdClient is what the user's own pods wear to reach etcd.
var etcdClient = map[string]string{"sandlot.io/etcd-client": "true"}

func checkNetworkPolicies(t *testing.T, objects manifests, only func(what, name string, selector *metav1.LabelSelector)) {
	t.Helper()
	all := workloads(objects)
	open := map[string]bool{}
	for _, policy := range of[*networkingv1.NetworkPolicy](objects) {
		if policy.Name == "default-deny" {
			if want := (networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"}}); !cmp.Equal(want, policy.Spec) {
				t.Errorf("default-deny does not deny everything: %v", policy.Spec)
			}
			continue
		}
		if slices.Contains(backupPolicies, policy.Name) { // TestRestoreNetwork looks at them
			continue
		}
		if policy.Name == "sandlot-etcd-client" { // is for pods that are not ours
			if !cmp.Equal(policy.Spec.PodSelector.MatchLabels, etcdClient) {
				t.Errorf("NetworkPolicy %s selects %v", policy.Name, policy.Spec.PodSelector)
			}
			continue
		}
		only("NetworkPolicy "+policy.Name, policy.Name, &policy.Spec.PodSelector)
		open[policy.Name] = true
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				if port.Port.Type == intstr.Int {
					t.Errorf("NetworkPolicy %s: name the port %s", policy.Name, port.Port)
					continue
				}
				containerPort(t, all[policy.Name], port.Port.StrVal)
			}
			for _, from := range rule.From {
				if from.PodSelector != nil && !cmp.Equal(from.PodSelector.MatchLabels, etcdClient) {
					name := from.PodSelector.MatchLabels["app.kubernetes.io/name"]
					only("ingress of NetworkPolicy "+policy.Name, name, from.PodSelector)
				}
			}
		}
	}
	for name := range all {
		if !open[name] {
			t.Errorf("no NetworkPolicy lets anyone reach %s", name)
		}
	}
}
