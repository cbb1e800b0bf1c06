// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func podOf(t *testing.T, text string) *corev1.PodSpec {
	t.Helper()
	spec := &corev1.PodSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestPortsOf(t *testing.T) {
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, Protocol: protocol, TargetPort: intstr.FromInt32(number)}
	}
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
	tests := map[string]struct {
		pod  string
		want []corev1.ServicePort
	}{
		"none": {pod: "containers: [{name: a}]"},
		"named and not": {
			pod:  "containers: [{name: a, ports: [{containerPort: 80, name: http}, {containerPort: 53, protocol: UDP}, {containerPort: 53}]}]",
			want: []corev1.ServicePort{port("http", 80, tcp), port("p-53-udp", 53, udp), port("p-53-tcp", 53, tcp)},
		},
		"of several containers, each once": {
			pod:  "containers: [{name: a, ports: [{containerPort: 80, name: http}]}, {name: b, ports: [{containerPort: 80, name: other}, {containerPort: 81, name: http}]}]",
			want: []corev1.ServicePort{port("http", 80, tcp), port("p-81-tcp", 81, tcp)},
		},
		"a name that is made up is taken": {
			pod:  "containers: [{name: a, ports: [{containerPort: 80}, {containerPort: 81, name: p-80-tcp}, {containerPort: 82, name: p-80-tcp-2}]}]",
			want: []corev1.ServicePort{port("p-80-tcp-3", 80, tcp), port("p-80-tcp", 81, tcp), port("p-80-tcp-2", 82, tcp)},
		},
		"sidecars, and not what ends": {
			pod: `
containers: [{name: a, ports: [{containerPort: 80}]}]
initContainers:
- {name: load, ports: [{containerPort: 1}]}
- {name: agent, restartPolicy: Always, ports: [{containerPort: 49983, name: agent}]}
`,
			want: []corev1.ServicePort{port("p-80-tcp", 80, tcp), port("agent", 49983, tcp)},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, portsOf(podOf(t, test.pod))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func box(service *bool) *v1alpha1.Sandbox {
	return &v1alpha1.Sandbox{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "box", UID: "u", Generation: 1},
		Spec:       v1alpha1.SandboxSpec{Service: service},
	}
}

func TestCorrect(t *testing.T) {
	want := serviceOf(box(new(true)), podOf(t, "containers: [{name: a, ports: [{containerPort: 80}]}]"))
	if !metav1.IsControlledBy(want, box(nil)) || want.Spec.ClusterIP != "None" || want.Spec.Selector[v1alpha1.LabelSandboxName] != "box" {
		t.Errorf("made %+v", want)
	}
	tests := map[string]struct {
		change func(*corev1.Service)
		drift  bool
	}{
		"nothing": {change: func(*corev1.Service) {}},
		"what the server fills in": {change: func(s *corev1.Service) {
			s.Spec.ClusterIPs, s.Spec.SessionAffinity = []string{"None"}, corev1.ServiceAffinityNone
			s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol}, new(corev1.IPFamilyPolicySingleStack)
			s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
		}},
		"others' metadata":  {change: func(s *corev1.Service) { s.Labels["a"], s.Annotations = "b", map[string]string{"a": "b"} }},
		"no labels":         {change: func(s *corev1.Service) { s.Labels = nil }, drift: true},
		"selector":          {change: func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} }, drift: true},
		"more selector":     {change: func(s *corev1.Service) { s.Spec.Selector["a"] = "b" }, drift: true},
		"port":              {change: func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(81) }, drift: true},
		"more ports":        {change: func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 9}) }, drift: true},
		"others' addresses": {change: func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }, drift: true},
		"another host":      {change: func(s *corev1.Service) { s.Spec.ExternalName = "example.com" }, drift: true},
		"affinity": {change: func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(5))}}
		}, drift: true},
		"not ready ones": {change: func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }, drift: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			is := want.DeepCopy()
			test.change(is)
			before := is.DeepCopy()
			got, changed := correct(is, want)
			if changed != test.drift {
				t.Errorf("changed %v", changed)
			}
			if diff := cmp.Diff(before, is); diff != "" {
				t.Errorf("what is there changed (-before +after):\n%s", diff)
			}
			if got.Spec.SessionAffinityConfig != nil {
				t.Error("an affinity config stays")
			}
			if again, changed := correct(got, want); changed {
				t.Errorf("corrected, and still not right: %v", again)
			}
		})
	}
}

// One that has an address, or had none as the name of another host, is not patched.
func TestMustReplace(t *testing.T) {
	want := serviceOf(box(new(true)), podOf(t, "containers: [{name: a}]"))
	for address, replaced := range map[string]bool{"None": false, "10.96.0.7": true, "": true} {
		is := want.DeepCopy()
		is.Spec.ClusterIP = address
		if mustReplace(is, want) != replaced {
			t.Errorf("%q: %v", address, !replaced)
		}
	}
}

// Sandboxes without spec.service cost nothing, and neither do the status and the deletion
// of those that have it.
func TestConcerned(t *testing.T) {
	later := func(service *bool, generation int64) *v1alpha1.Sandbox {
		sandbox := box(service)
		sandbox.Generation = generation
		return sandbox
	}
	dying, another := box(new(true)), box(new(true))
	dying.DeletionTimestamp = &metav1.Time{}
	another.UID = "another"
	p := concerned()
	for name, got := range map[string]bool{
		"made without":              !p.Create(event.CreateEvent{Object: box(nil)}),
		"made with":                 p.Create(event.CreateEvent{Object: box(new(true))}),
		"made with none":            p.Create(event.CreateEvent{Object: box(new(false))}),
		"found dying":               !p.Create(event.CreateEvent{Object: dying}),
		"changed without":           !p.Update(event.UpdateEvent{ObjectOld: box(nil), ObjectNew: later(nil, 2)}),
		"status with":               !p.Update(event.UpdateEvent{ObjectOld: box(new(true)), ObjectNew: later(new(true), 1)}),
		"wanted":                    p.Update(event.UpdateEvent{ObjectOld: box(nil), ObjectNew: later(new(true), 2)}),
		"unwanted":                  p.Update(event.UpdateEvent{ObjectOld: box(new(true)), ObjectNew: later(new(false), 2)}),
		"left to itself":            !p.Update(event.UpdateEvent{ObjectOld: box(new(true)), ObjectNew: later(nil, 2)}),
		"recreated, seen as update": p.Update(event.UpdateEvent{ObjectOld: box(new(true)), ObjectNew: another}),
		"deleted":                   !p.Delete(event.DeleteEvent{Object: box(new(true))}),
		"changed, with a new image": p.Update(event.UpdateEvent{ObjectOld: box(new(true)), ObjectNew: later(new(true), 2)}),
	} {
		if !got {
			t.Errorf("%s: wrong", name)
		}
	}
}

// TestServiceOfAgentSandbox: a claim of agent-sandbox finds the Service of its sandbox as it
// should be, and changes nothing. What selects the pod is its name, never the hash of that.
func TestServiceOfAgentSandbox(t *testing.T) {
	sandbox, spec := box(new(true)), &corev1.PodSpec{}
	plain := serviceOf(sandbox, spec)
	if plain.Labels[v1alpha1.AgentLabelNameHash] != v1alpha1.NameHash("box") {
		t.Errorf("a Service is born with the labels %v", plain.Labels)
	}
	sandbox.Annotations = map[string]string{v1alpha1.AnnotationAPI: v1alpha1.AgentsGroup}
	agent := serviceOf(sandbox, spec)
	if corrected, changed := correct(plain, agent); changed || !metav1.IsControlledBy(plain, sandbox) {
		t.Errorf("a claim changes the Service: %v", cmp.Diff(plain, corrected))
	}
	for _, service := range []*corev1.Service{plain, agent} {
		if diff := cmp.Diff(map[string]string{v1alpha1.LabelSandboxName: "box"}, service.Spec.Selector); diff != "" {
			t.Errorf("selector (-want +got):\n%s", diff)
		}
	}
	if owner := agent.OwnerReferences[0]; owner.APIVersion != "agents.x-k8s.io/v1beta1" {
		t.Errorf("one that is made in agent-sandbox belongs to %v", owner)
	}
}

// TestEventsOfServices: an event of a Service queues its sandbox, in whichever API the
// Service names it.
func TestEventsOfServices(t *testing.T) {
	sandbox := box(new(true))
	want := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "box"}}}
	for _, api := range []string{"", v1alpha1.AgentsGroup} {
		sandbox.Annotations = map[string]string{v1alpha1.AnnotationAPI: api}
		if diff := cmp.Diff(want, sandboxOf(t.Context(), serviceOf(sandbox, &corev1.PodSpec{}))); diff != "" {
			t.Errorf("in the API %q (-want +got):\n%s", api, diff)
		}
	}
	stranger := serviceOf(sandbox, &corev1.PodSpec{})
	stranger.OwnerReferences[0].APIVersion = "example.com/v1"
	if got := sandboxOf(t.Context(), stranger); got != nil {
		t.Errorf("a stranger's Service queues %v", got)
	}
}
