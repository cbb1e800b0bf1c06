// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const (
	current = "current"
	older   = "older"
)

// epoch is when the tests happen.
var epoch = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// targetOf is a revision that sandboxes can be made of.
func targetOf(revision string) targetRevision {
	set := makeSet(0)
	return targetRevision{revision: revision, currentRevision: "pool-" + revision, setAtRevision: set, resolved: podtemplate.Inline(set.Spec.Template)}
}

// builder makes a sandbox of the set "pool"; each method changes it.
type builder struct{ *v1alpha1.Sandbox }

// starting is a sandbox that no controller of pods has taken up yet.
func starting(name string) builder {
	return builder{&v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace:         "ns",
		Name:              name,
		UID:               types.UID(name),
		ResourceVersion:   "1",
		CreationTimestamp: metav1.NewTime(epoch.Add(-time.Hour)),
		Labels: map[string]string{
			v1alpha1.LabelSandboxPool:    "pool",
			v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse,
			v1alpha1.LabelTemplateHash:   current,
		},
		Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(makeSet(0), v1alpha1.SchemeGroupVersion.WithKind("SandboxSet")),
		},
	}}}
}

// available is a sandbox that can be claimed.
func available(name string) builder {
	return starting(name).phase(v1alpha1.SandboxRunning).ip("127.1.1.1").ready(true)
}

func (b builder) phase(p v1alpha1.SandboxPhase) builder { b.Status.Phase = p; return b }
func (b builder) ip(ip string) builder                  { b.Status.PodInfo.PodIP = ip; return b }
func (b builder) paused() builder                       { b.Spec.Paused = true; return b }
func (b builder) recycled(n int32) builder              { b.Status.RecycledCount = n; return b }
func (b builder) revision(r string) builder             { return b.label(v1alpha1.LabelTemplateHash, r) }
func (b builder) label(key, value string) builder       { b.Labels[key] = value; return b }
func (b builder) annotation(key, value string) builder  { b.Annotations[key] = value; return b }

func (b builder) ready(ready bool) builder {
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: status, Reason: "PodReady"}}
	return b
}

func (b builder) age(age time.Duration) builder {
	b.CreationTimestamp = metav1.NewTime(epoch.Add(-age))
	return b
}

func (b builder) shutdown(t time.Time) builder {
	b.Spec.ShutdownTime = new(metav1.NewTime(t))
	return b
}

func (b builder) deleting() builder {
	b.DeletionTimestamp = new(metav1.NewTime(epoch))
	return b
}

func sandboxes(builders ...builder) []*v1alpha1.Sandbox {
	var all []*v1alpha1.Sandbox
	for _, b := range builders {
		all = append(all, b.Sandbox)
	}
	return all
}

func makeSet(replicas int32, change ...func(*v1alpha1.SandboxSet)) *v1alpha1.SandboxSet {
	set := &v1alpha1.SandboxSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "set", Generation: 1},
		Spec: v1alpha1.SandboxSetSpec{
			Replicas: &replicas,
			EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{
				Template: &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"c","image":"i"}]}}`)},
			},
		},
	}
	for _, f := range change {
		f(set)
	}
	return set
}

func scaleLimit(v intstr.IntOrString) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) { set.Spec.ScaleStrategy.MaxUnavailable = &v }
}

func updateLimit(v intstr.IntOrString) func(*v1alpha1.SandboxSet) {
	return func(set *v1alpha1.SandboxSet) { set.Spec.UpdateStrategy.MaxUnavailable = &v }
}
