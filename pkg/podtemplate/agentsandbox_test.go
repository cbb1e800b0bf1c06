// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

// memberOf makes a sandbox for the pool of a set with a name.
func memberOf(t *testing.T, set *v1alpha1.SandboxSet, lookup podtemplate.Lookup) *v1alpha1.Sandbox {
	t.Helper()
	resolved, err := podtemplate.ResolveSet(t.Context(), set, lookup)
	if err != nil {
		t.Fatal(err)
	}
	member, err := podtemplate.NewSandbox(set, "rev", resolved)
	if err != nil {
		t.Fatal(err)
	}
	member.Name, member.UID = "box", "box-uid"
	return member
}

// agentKeys are the entries whose keys are those of agent-sandbox, or of the autoscaler.
func agentKeys(in map[string]string) map[string]string {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return !strings.HasPrefix(key, v1alpha1.AgentKeyPrefix) && !strings.HasPrefix(key, v1alpha1.ExtensionsGroup) &&
			key != v1alpha1.AnnotationSafeToEvict
	})
	return out
}

// TestAgentMarksOfAMember: a sandbox of any pool says from birth what agent-sandbox's do,
// on itself and on its pod, whatever its template says under these keys.
func TestAgentMarksOfAMember(t *testing.T) {
	const pod = `{"metadata":{
		"labels":{"agents.x-k8s.io/sandbox-name-hash":"00000000","agents.x-k8s.io/mine":"x","app":"a"},
		"annotations":{"extensions.agents.x-k8s.io/mine":"x","agents.x-k8s.io/sandbox-template-ref":"other"}},
		"spec":{"containers":[{"name":"c","image":"i"}]}}`
	shared := builders.Template("shared")
	shared.Spec.Template = &runtime.RawExtension{Raw: []byte(pod)}
	lookup := &templatesByName{all: map[string]*v1alpha1.SandboxTemplate{"shared": shared}}
	tests := map[string]struct {
		refers bool
		kind   v1alpha1.SandboxSetUpdateType
		of     string
		evict  bool
	}{
		"of its own template":         {of: "pool"},
		"of another template":         {refers: true, of: "shared"},
		"a warm pool":                 {refers: true, kind: v1alpha1.SetUpdateOnReplenish, of: "shared", evict: true},
		"a warm pool that recreates":  {refers: true, kind: v1alpha1.SetUpdateRecreate, of: "shared", evict: true},
		"one that says it rolls out":  {refers: true, kind: v1alpha1.SetUpdateRolling, of: "shared"},
		"a warm pool of its template": {kind: v1alpha1.SetUpdateRecreate, of: "pool", evict: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			set := builders.Set("pool", 1)
			set.UID, set.Spec.Template = "set", shared.Spec.Template
			set.Spec.UpdateStrategy.Type = test.kind
			if test.refers {
				set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "shared"}
			}
			member := memberOf(t, set, lookup)
			wantAnnotations := map[string]string{v1alpha1.AgentAnnotationTemplate: test.of}
			wantOnPod := map[string]string{}
			if test.evict {
				wantAnnotations[v1alpha1.AnnotationSafeToEvict] = "true"
				wantOnPod[v1alpha1.AnnotationSafeToEvict] = "true"
			}
			wantLabels := map[string]string{
				v1alpha1.AgentLabelPool:      v1alpha1.NameHash("pool"),
				v1alpha1.AgentLabelTemplate:  v1alpha1.NameHash(test.of),
				v1alpha1.AgentLabelCreatedBy: "controller",
			}
			if diff := cmp.Diff(wantLabels, agentKeys(member.Labels)); diff != "" {
				t.Errorf("labels of the sandbox (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantAnnotations, agentKeys(member.Annotations)); diff != "" {
				t.Errorf("annotations of the sandbox (-want +got):\n%s", diff)
			}
			member.Spec.Template = shared.Spec.Template
			made, err := podtemplate.Pod(member, "rev")
			if err != nil {
				t.Fatal(err)
			}
			wantLabels[v1alpha1.AgentLabelNameHash] = v1alpha1.NameHash("box")
			if diff := cmp.Diff(wantLabels, agentKeys(made.GetLabels())); diff != "" {
				t.Errorf("labels of the pod (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantOnPod, agentKeys(made.GetAnnotations())); diff != "" {
				t.Errorf("annotations of the pod (-want +got):\n%s", diff)
			}
			if made.GetLabels()["app"] != "a" {
				t.Error("the pod lost a label of its template")
			}
		})
	}
}

// TestTemplateChoosesEviction: what a template says of evictions stays, before and after a
// claim.
func TestTemplateChoosesEviction(t *testing.T) {
	set := builders.Set("pool", 1)
	set.Spec.UpdateStrategy.Type = v1alpha1.SetUpdateOnReplenish
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(
		`{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/safe-to-evict":"false"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`)}
	member := memberOf(t, set, nil)
	for _, pooled := range []bool{true, false} {
		if !pooled {
			member.OwnerReferences = nil
		}
		made, err := podtemplate.Pod(member, "rev")
		if err != nil {
			t.Fatal(err)
		}
		if got := made.GetAnnotations()[v1alpha1.AnnotationSafeToEvict]; got != "false" {
			t.Errorf("in a pool %v, the pod says %q", pooled, got)
		}
	}
}

// TestPatchAfterAClaim: trap 6, a router sends nothing to a pod that says it is pooled. The
// one patch after a claim takes that away with what else was the pool's, gives the pod what
// is the claim's, and names its owner in the words of the claim. What others have added
// stays.
func TestPatchAfterAClaim(t *testing.T) {
	for name, agent := range map[string]bool{"agents.kruise.io": false, "agents.x-k8s.io": true} {
		t.Run(name, func(t *testing.T) {
			set := builders.Set("pool", 1)
			set.UID, set.Spec.UpdateStrategy.Type = "set", v1alpha1.SetUpdateOnReplenish
			sandbox := memberOf(t, set, nil)
			before, err := podtemplate.Pod(sandbox, "rev")
			if err != nil {
				t.Fatal(err)
			}
			other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}
			before.SetOwnerReferences(append(before.GetOwnerReferences(), other))

			sandbox.OwnerReferences = nil
			delete(sandbox.Labels, v1alpha1.AgentLabelPool)
			owner := metav1.OwnerReference{APIVersion: "agents.kruise.io/v1alpha1", Kind: "Sandbox", Name: "box", UID: "box-uid", Controller: new(true), BlockOwnerDeletion: new(true)}
			want := map[string]string{
				v1alpha1.AgentLabelNameHash:  v1alpha1.NameHash("box"),
				v1alpha1.AgentLabelTemplate:  v1alpha1.NameHash("pool"),
				v1alpha1.AgentLabelCreatedBy: "controller",
			}
			if agent {
				sandbox.Annotations[v1alpha1.AnnotationAPI] = v1alpha1.AgentsGroup
				sandbox.Labels[v1alpha1.AgentLabelClaimUID], sandbox.Labels[v1alpha1.AgentLabelCreatedBy] = "claim", "go-client"
				want[v1alpha1.AgentLabelClaimUID], want[v1alpha1.AgentLabelCreatedBy] = "claim", "go-client"
				owner.APIVersion = "agents.x-k8s.io/v1beta1"
			}
			after := patched(t, before, sandbox)
			if diff := cmp.Diff(want, agentKeys(after.Labels)); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if value, ok := after.Annotations[v1alpha1.AnnotationSafeToEvict]; ok {
				t.Errorf("the pod of a claimed sandbox may still be evicted: %q", value)
			}
			if diff := cmp.Diff([]metav1.OwnerReference{owner, other}, after.OwnerReferences); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}

// patched is a pod after the patch that a sandbox brings, as a server applies it.
func patched(t *testing.T, pod interface {
	json.Marshaler
	GetUID() types.UID
	GetAnnotations() map[string]string
}, sandbox *v1alpha1.Sandbox,
) *corev1.Pod {
	t.Helper()
	patch, err := podtemplate.PodMetadataPatch(sandbox, "next", pod.GetUID(), pod.GetAnnotations())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := pod.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(raw, patch, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.Pod{}
	if err := json.Unmarshal(merged, after); err != nil {
		t.Fatal(err)
	}
	return after
}

// TestRevisionsSurviveAnUpgrade: what sandboxes carry for agent-sandbox is in no revision,
// nor is how they are replaced. So an upgrade, and a change of that, roll nothing out. The
// revision is the one that earlier versions have made.
func TestRevisionsSurviveAnUpgrade(t *testing.T) {
	template := &runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`)}
	for _, kind := range []v1alpha1.SandboxSetUpdateType{"", v1alpha1.SetUpdateRolling, v1alpha1.SetUpdateRecreate, v1alpha1.SetUpdateOnReplenish} {
		set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"}}
		set.Spec.UpdateStrategy.Type = kind
		revision, err := podtemplate.SetRevision(set, podtemplate.Inline(template))
		if err != nil {
			t.Fatal(err)
		}
		if want := "k75ixomnuydk6gp4"; revision != want {
			t.Errorf("with the type %q the revision is %s, and was %s", kind, revision, want)
		}
	}
	sandbox := sandboxOf(string(template.Raw))
	before, err := podtemplate.SandboxRevision(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	if podtemplate.PodMetadataOutdated(map[string]string{
		v1alpha1.LabelPodTemplateHash: before, v1alpha1.LabelCreatedBy: v1alpha1.CreatedBySandbox,
	}, before) {
		t.Error("the pods of an earlier version are all written anew")
	}
}

// TestRecreateReplaces: the controller and the API server go by the same rule.
func TestRecreateReplaces(t *testing.T) {
	set := setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to("base") })
	for name, test := range map[string]struct {
		template, revision string
		want               bool
	}{
		"current":                  {"base", "target", false},
		"differs in metadata":      {"base", "alike", false},
		"another revision":         {"base", "other", true},
		"of another template":      {"else", "target", true},
		"no template, no revision": {"", "", true},
	} {
		sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			v1alpha1.LabelSandboxTemplate: test.template, v1alpha1.LabelTemplateHash: test.revision,
		}}}
		got := podtemplate.RecreateReplaces(set, sandbox, "target", func(revision string) bool { return revision == "alike" })
		if got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestSameButMetadata: labels and annotations of pods and volumes are no difference, and
// everything else is.
func TestSameButMetadata(t *testing.T) {
	const claim = `{"metadata":{"name":"data","labels":{"a":"1"}},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`
	template := func(pod, claim string) *v1alpha1.SandboxTemplate {
		made := &v1alpha1.SandboxTemplate{}
		made.Spec.Template = &runtime.RawExtension{Raw: []byte(pod)}
		made.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(claim)}}
		return made
	}
	const pod = `{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	base := template(pod, claim)
	withService := base.DeepCopy()
	withService.Spec.Service = new(true)
	tests := map[string]struct {
		other *v1alpha1.SandboxTemplate
		want  bool
	}{
		"the same":              {base, true},
		"in another order":      {template(`{"spec":{"containers":[{"image":"i","name":"c"}]},"metadata":{"labels":{"a":"1"}}}`, claim), true},
		"other labels":          {template(`{"metadata":{"labels":{"b":"1"},"annotations":{"c":"d"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, claim), true},
		"no metadata":           {template(`{"spec":{"containers":[{"name":"c","image":"i"}]}}`, claim), true},
		"another image":         {template(`{"spec":{"containers":[{"name":"c","image":"j"}]}}`, claim), false},
		"a volume's labels":     {template(pod, `{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`), true},
		"a volume's name":       {template(pod, `{"metadata":{"name":"more"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`), false},
		"a volume's size":       {template(pod, `{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), false},
		"a Service":             {withService, false},
		"what cannot be read":   {template(`[]`, claim), false},
		"a volume with no name": {template(pod, `{"spec":{}}`), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := podtemplate.SameButMetadata(base, test.other); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
