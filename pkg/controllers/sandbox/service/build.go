// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/incomplete"
)

// CachedServices selects the Services that this controller needs in the cache.
func CachedServices() cache.ByObject {
	return cache.ByObject{
		Label:     labels.SelectorFromValidatedSet(labels.Set{v1alpha1.LabelCreatedBy: v1alpha1.CreatedBySandbox}),
		Transform: incomplete.Transform(func(s *corev1.Service) { s.Spec, s.Status = corev1.ServiceSpec{}, corev1.ServiceStatus{} }),
	}
}

// serviceOf returns the Service of a sandbox whose pods have this spec. The sandbox has a
// name that a Service can have, so it is the value of a label, too.
func serviceOf(sandbox *v1alpha1.Sandbox, spec *corev1.PodSpec) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       sandbox.Namespace,
			Name:            sandbox.Name,
			Labels:          labelsOf(sandbox),
			OwnerReferences: []metav1.OwnerReference{*v1alpha1.OwnedBySandbox(sandbox)},
		},
		Spec: corev1.ServiceSpec{
			Type:      corev1.ServiceTypeClusterIP,
			ClusterIP: corev1.ClusterIPNone,
			Selector:  selectorOf(sandbox),
			Ports:     portsOf(spec),
		},
	}
}

// labelsOf returns the labels by which the Service of a sandbox is known. The hash of the
// sandbox's name is that of agent-sandbox; all have it from birth, so that a claim of that
// API changes no Service.
func labelsOf(sandbox *v1alpha1.Sandbox) map[string]string {
	labels := selectorOf(sandbox)
	labels[v1alpha1.LabelCreatedBy] = v1alpha1.CreatedBySandbox
	labels[v1alpha1.AgentLabelNameHash] = v1alpha1.NameHash(sandbox.Name)
	return labels
}

// selectorOf returns what selects the pod of a sandbox: its name, in either API. The hash
// by which clients of agent-sandbox know pods does not select: names of the same hash are
// easily found, and a Service must not lead to the sandbox of another user.
func selectorOf(sandbox *v1alpha1.Sandbox) map[string]string {
	return map[string]string{v1alpha1.LabelSandboxName: sandbox.Name}
}

// portsOf returns the ports of all containers and sidecars, in their order, each once.
// Names that containers give come before generated ones:
//
//	{containerPort: 80}                     p-80-tcp
//	{containerPort: 53, protocol: UDP}      p-53-udp
//	{containerPort: 8080, name: http}       http
//	http once more, of another container    p-<port>-<protocol>
//	{containerPort: 80}, p-80-tcp given     p-80-tcp-2
func portsOf(spec *corev1.PodSpec) []corev1.ServicePort {
	type endpoint struct {
		port     int32
		protocol corev1.Protocol
	}
	seen, names := map[endpoint]bool{}, map[string]bool{}
	var ports []corev1.ServicePort
	add := func(container *corev1.Container) {
		for _, port := range container.Ports {
			at := endpoint{port.ContainerPort, cmp.Or(port.Protocol, corev1.ProtocolTCP)}
			if seen[at] {
				continue
			}
			seen[at] = true
			name := port.Name
			if names[name] {
				name = ""
			}
			names[name] = true
			ports = append(ports, corev1.ServicePort{
				Name: name, Port: at.port, Protocol: at.protocol, TargetPort: intstr.FromInt32(at.port),
			})
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if policy := spec.InitContainers[i].RestartPolicy; policy != nil && *policy == corev1.ContainerRestartPolicyAlways {
			add(&spec.InitContainers[i])
		}
	}
	for i := range ports {
		if ports[i].Name == "" {
			ports[i].Name = freeName(&ports[i], names)
			names[ports[i].Name] = true
		}
	}
	return ports
}

// freeName generates a name for a port that is not taken.
func freeName(port *corev1.ServicePort, taken map[string]bool) string {
	name := fmt.Sprintf("p-%d-%s", port.Port, strings.ToLower(string(port.Protocol)))
	for free, n := name, 2; ; free, n = fmt.Sprintf("%s-%d", name, n), n+1 {
		if !taken[free] {
			return free
		}
	}
}

// mustReplace reports whether a Service differs in what is immutable: one with a cluster
// IP, or the name of another host, never becomes headless.
func mustReplace(current, desired *corev1.Service) bool {
	return current.Spec.ClusterIP != desired.Spec.ClusterIP
}

// correct returns a corrected copy of a Service and reports whether that differs. It
// keeps labels and annotations that users added, and what the cluster filled in.
func correct(current, desired *corev1.Service) (*corev1.Service, bool) {
	corrected := current.DeepCopy()
	if corrected.Labels == nil {
		corrected.Labels = map[string]string{}
	}
	maps.Copy(corrected.Labels, desired.Labels)
	spec := &corrected.Spec
	spec.Type = desired.Spec.Type
	spec.Selector = desired.Spec.Selector
	spec.Ports = desired.Spec.Ports
	spec.PublishNotReadyAddresses = desired.Spec.PublishNotReadyAddresses
	spec.ExternalIPs, spec.ExternalName = nil, ""
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	}
	return corrected, !equality.Semantic.DeepEqual(current, corrected)
}
