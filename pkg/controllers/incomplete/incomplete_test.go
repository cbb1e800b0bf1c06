// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package incomplete

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const many = 2000

// TestItems: wherever an object has its items, they count.
func TestItems(t *testing.T) {
	selector := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: make([]string, many)}}}
	peers := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: make([]string, many)}}}
	quantities := corev1.ResourceList{}
	for i := range many {
		quantities[corev1.ResourceName(strconv.Itoa(i))] = resource.MustParse("1")
	}
	for name, object := range map[string]any{
		"ingress":         &networkingv1.NetworkPolicySpec{Ingress: make([]networkingv1.NetworkPolicyIngressRule, many)},
		"egress":          &networkingv1.NetworkPolicySpec{Egress: make([]networkingv1.NetworkPolicyEgressRule, many)},
		"network ports":   &networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: make([]networkingv1.NetworkPolicyPort, many)}}},
		"peers":           &networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: make([]networkingv1.NetworkPolicyPeer, many)}}},
		"excepts":         &networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: peers}}},
		"selector":        &networkingv1.NetworkPolicySpec{PodSelector: selector},
		"peer's selector": &networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &selector}}}}},
		"service ports":   &corev1.ServiceSpec{Ports: make([]corev1.ServicePort, many)},
		"containers":      &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: make([]corev1.Container, many)}},
		"variables":       &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Env: make([]corev1.EnvVar, many)}}}},
		"resources":       &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Overhead: quantities}},
		"node terms": &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, many)},
		}}}},
	} {
		if n := itemsIn(reflect.ValueOf(object)); n < many || n > many+10 {
			t.Errorf("%s: %d items", name, n)
		}
	}
}

// TestTimes: the rules of a time zone do not count for each time.
func TestTimes(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("the rules of time zones: %v", err)
	}
	service := &corev1.ServiceStatus{Conditions: []metav1.Condition{{LastTransitionTime: metav1.NewTime(time.Unix(0, 0).In(berlin))}}}
	if n := itemsIn(reflect.ValueOf(service)); n != 1 {
		t.Errorf("a service with a condition has %d items", n)
	}
}

// TestTransform: an object with many items, also in its metadata, does not fill the cache. Its controller is known, and
// the label by which it was selected. Others stay as they are.
func TestTransform(t *testing.T) {
	pairs := map[string]string{v1alpha1.LabelCreatedBy: "us"}
	for i := range many {
		pairs[strconv.Itoa(i)] = ""
	}
	controller := metav1.OwnerReference{Name: "box", UID: "box", Controller: new(true)}
	for name, change := range map[string]func(*corev1.PodTemplate){
		"labels":      func(o *corev1.PodTemplate) { o.Labels = pairs },
		"annotations": func(o *corev1.PodTemplate) { o.Annotations = pairs },
		"owners": func(o *corev1.PodTemplate) {
			o.OwnerReferences = append(o.OwnerReferences, make([]metav1.OwnerReference, many)...)
		},
		"finalizers": func(o *corev1.PodTemplate) { o.Finalizers = make([]string, many) },
		"content":    func(o *corev1.PodTemplate) { o.Template.Spec.Tolerations = make([]corev1.Toleration, many) },
		"nothing":    func(o *corev1.PodTemplate) { o.ManagedFields = make([]metav1.ManagedFieldsEntry, many) },
	} {
		object := &corev1.PodTemplate{
			ObjectMeta: metav1.ObjectMeta{
				Name: "one", Labels: map[string]string{v1alpha1.LabelCreatedBy: "us"}, OwnerReferences: []metav1.OwnerReference{controller},
			},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "content"}},
		}
		change(object)
		got, err := Transform(func(o *corev1.PodTemplate) { o.Template = corev1.PodTemplateSpec{} })(object)
		if err != nil || got != object {
			t.Fatal(got, err)
		}
		isDropped := name != "nothing"
		if Is(object) != isDropped || (object.Template.Spec.NodeName == "") != isDropped || itemsIn(reflect.ValueOf(object)) > 3 ||
			object.Labels[v1alpha1.LabelCreatedBy] != "us" || !cmp.Equal(metav1.GetControllerOf(object), &controller) {
			t.Errorf("many %s: %+v", name, object)
		}
	}
}
