// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package census

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// pooled is a sandbox of a pool of a template.
func pooled(name string) *v1alpha1.Sandbox {
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "pool"}}
	return &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))},
		Labels: map[string]string{
			v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelSandboxTemplate: "python", v1alpha1.LabelTemplateHash: "1",
			v1alpha1.AgentLabelCreatedBy: v1alpha1.AgentCreatedByController,
		},
	}}
}

func ready(sb *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	sb.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodReady}}
	return sb
}

func claimed(sb *v1alpha1.Sandbox, by string) *v1alpha1.Sandbox {
	sb.OwnerReferences = nil
	sb.Annotations = map[string]string{v1alpha1.AnnotationOwner: "claim"}
	sb.Labels[v1alpha1.AgentLabelCreatedBy] = by
	return sb
}

// Sandboxes are counted from the watch, each once, whatever it has reported before.
func TestCensus(t *testing.T) {
	c := New()
	c.is(pooled("a"))
	c.is(ready(pooled("b")))
	c.is(ready(pooled("b"))) // again, with nothing new
	c.is(ready(pooled("c")))
	c.is(claimed(ready(pooled("c")), "python-client"))
	expired := claimed(pooled("d"), "whoever")
	expired.Status.Conditions = []metav1.Condition{{Type: v1alpha1.SandboxConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSandboxExpired}}
	c.is(expired)
	fresh := claimed(pooled("e"), "go-client")
	delete(fresh.Labels, v1alpha1.LabelTemplateHash)
	c.is(fresh)
	alone := pooled("f")
	alone.OwnerReferences, alone.Labels = nil, map[string]string{v1alpha1.LabelSandboxTemplate: "invented"}
	c.is(alone)
	for _, gone := range []string{"x", "y"} {
		c.is(pooled(gone))
	}
	c.isGone(pooled("x"))
	c.isGone(toolscache.DeletedFinalStateUnknown{Key: "ns/y", Obj: pooled("y")})
	c.isGone(pooled("never"))

	got := map[string]int{}
	total := map[kind]int{}
	c.read(total)
	for k, n := range total {
		got[fmt.Sprint(k.labels())] = n
	}
	want := map[string]int{
		"[ns false false unknown python SandboxWarmPool controller]": 1,
		"[ns true false unknown python SandboxWarmPool controller]":  1,
		"[ns true false warm python SandboxClaim python-client]":     1,
		"[ns false true warm python SandboxClaim unknown]":           1,
		"[ns false false cold python SandboxClaim go-client]":        1,
		"[ns false false unknown __unknown__ None unknown]":          1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sandboxes (-want +got):\n%s", diff)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		c.isGone(pooled(name))
	}
	if len(c.counts)+len(c.of) != 0 {
		t.Errorf("nothing is left, but %v of %v", c.counts, c.of)
	}
}

// However many templates there are, series are few, and a namespace with many takes no
// place of another.
func TestBounded(t *testing.T) {
	all := map[kind]int{}
	sum := 0
	add := func(namespace, template string, n int) {
		all[kind{namespace: namespace, template: template}] += n
		sum += n
	}
	for i := range 500 {
		add("greedy", fmt.Sprintf("template-%d", i), 1000-i)
	}
	for i := range 60 {
		add(fmt.Sprintf("ns-%02d", i), "python", 2)
		add(fmt.Sprintf("ns-%02d", i), "ruby", 1)
	}
	few := bounded(all)
	names, total := map[string]int{}, 0
	for k, n := range few {
		names[k.namespace]++
		total += n
	}
	if total != sum {
		t.Errorf("%d sandboxes are shown of %d", total, sum)
	}
	if len(few) > maxTemplates+61 || names["greedy"] > maxTemplatesOfNamespace+1 || names["greedy"] < 2 {
		t.Errorf("%d series, %d of one namespace", len(few), names["greedy"])
	}
	if few[kind{namespace: "greedy", template: "template-0"}] != 1000 || few[kind{namespace: "greedy", template: "template-499"}] != 0 {
		t.Errorf("those with most sandboxes are not those that are shown")
	}
	for i := range 60 {
		if few[kind{namespace: fmt.Sprintf("ns-%02d", i), template: "python"}] != 2 {
			t.Errorf("ns-%02d has no figures of its own: %v", i, few)
			break
		}
	}

	for i := range 200 {
		add(fmt.Sprintf("more-%d", i), "python", 3)
	}
	if few := bounded(all); len(few) > 2*maxTemplates+1 || few[kind{namespace: claims.OtherFigures, template: claims.OtherFigures}] == 0 {
		t.Errorf("%d series of %d namespaces", len(few), 261)
	}
}
