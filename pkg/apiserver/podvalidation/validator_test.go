// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

const (
	namespace = "team-a"
	plain     = `{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`
)

// store has templates; names that begin with "lost-" cannot be looked up.
type store struct {
	sandboxTemplates map[string]*v1alpha1.SandboxTemplate
	podTemplates     map[string]*corev1.PodTemplate
	asked            []string
}

func (s *store) SandboxTemplate(_ context.Context, _, name string) (*v1alpha1.SandboxTemplate, error) {
	if strings.HasPrefix(name, "lost-") {
		return nil, errors.New("etcd is down")
	}
	return s.sandboxTemplates[name], nil
}

func (s *store) PodTemplate(_ context.Context, _, name string) (*corev1.PodTemplate, error) {
	s.asked = append(s.asked, name)
	if strings.HasPrefix(name, "lost-") {
		return nil, errors.New("the cluster is away")
	}
	return s.podTemplates[name], nil
}

// cluster refuses pods with a node name, and warns of those with a host name.
type cluster struct{ pods []*unstructured.Unstructured }

func (c *cluster) Pod(_ context.Context, pod *unstructured.Unstructured) Result {
	c.pods = append(c.pods, pod)
	spec := pod.Object["spec"].(map[string]any)
	var result Result
	if spec["nodeName"] != nil {
		result.Causes = []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "spec.nodeName", Message: `Invalid value: "x": no`}}
	}
	if spec["hostname"] != nil {
		result.Warnings = []string{"a host name"}
	}
	return result
}

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func template(name, text string) *v1alpha1.SandboxTemplate {
	t := &v1alpha1.SandboxTemplate{}
	t.Namespace, t.Name = namespace, name
	t.Spec.Template = raw(text)
	return t
}

func referring(name string, ref v1alpha1.SandboxTemplateRef) *v1alpha1.SandboxTemplate {
	t := template(name, "")
	t.Spec.Template, t.Spec.TemplateRef = nil, &ref
	return t
}

func set(ref, patch string) *v1alpha1.SandboxSet {
	s := &v1alpha1.SandboxSet{}
	s.Namespace, s.Name = namespace, "pool"
	s.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: ref}
	if patch != "" {
		s.Spec.Patch = raw(patch)
	}
	return s
}

func newStore() *store {
	podTemplate := func(label string, containers ...corev1.Container) *corev1.PodTemplate {
		t := &corev1.PodTemplate{}
		t.Template.Labels = map[string]string{label: "x"}
		t.Template.Spec.Containers = containers
		return t
	}
	main := corev1.Container{Name: "main", Image: "busybox:1"}
	all := map[string]*v1alpha1.SandboxTemplate{}
	for _, t := range []*v1alpha1.SandboxTemplate{
		template("plain", plain),
		template("pinned", `{"spec":{"nodeName":"x","containers":[{"name":"main","image":"busybox:1"}]}}`),
		template("named", `{"spec":{"hostname":"x","containers":[{"name":"main","image":"busybox:1"}]}}`),
		referring("link", v1alpha1.SandboxTemplateRef{Name: "plain"}),
		referring("open", v1alpha1.SandboxTemplateRef{Name: "nowhere"}),
		referring("round", v1alpha1.SandboxTemplateRef{Name: "about"}),
		referring("about", v1alpha1.SandboxTemplateRef{Name: "round"}),
		referring("back", v1alpha1.SandboxTemplateRef{Name: "new"}),
		referring("foreign", v1alpha1.SandboxTemplateRef{Name: "x", Kind: "Deployment"}),
		referring("core", v1alpha1.SandboxTemplateRef{Name: "core", Kind: "PodTemplate"}),
		referring("core-bad", v1alpha1.SandboxTemplateRef{Name: "bad", Kind: "PodTemplate"}),
		referring("core-lost", v1alpha1.SandboxTemplateRef{Name: "lost-core", Kind: "PodTemplate"}),
	} {
		all[t.Name] = t
	}
	return &store{sandboxTemplates: all, podTemplates: map[string]*corev1.PodTemplate{
		"core": podTemplate("app", main), "bad": podTemplate("e2b.agents.kruise.io/x", main),
	}}
}

// flat is what a client reads of a validation.
func flat(errs field.ErrorList, warnings []string) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	for _, text := range warnings {
		texts = append(texts, "Warning: "+text)
	}
	return texts
}

// expect compares beginnings.
func expect(t *testing.T, got, want []string) {
	t.Helper()
	cut := make([]string, len(got))
	for i, text := range got {
		cut[i] = text
		if i < len(want) {
			cut[i] = text[:min(len(text), len(want[i]))]
		}
	}
	if diff := cmp.Diff(want, cut); diff != "" && len(want)+len(cut) > 0 {
		t.Errorf("(-want +got):\n%s\nin full: %q", diff, got)
	}
}

func TestValidateSet(t *testing.T) {
	tests := map[string]struct {
		set *v1alpha1.SandboxSet
		// alone is what is found without a cluster, with what one adds.
		alone, with []string
		// dataClaim gives the set a volume "data".
		dataClaim bool
	}{
		"plain":          {set: set("plain", "")},
		"chain":          {set: set("link", `{"metadata":{"labels":{"a":"b"}}}`)},
		"PodTemplate":    {set: set("core", `{"spec":{"containers":[{"name":"main","image":"busybox:2"}]}}`)},
		"missing":        {set: set("nowhere", ""), alone: []string{"Warning: spec.templateRef: SandboxTemplate nowhere: not found; the set stays empty until it exists"}},
		"missing in two": {set: set("open", "{}"), alone: []string{"Warning: spec.templateRef: SandboxTemplate open -> SandboxTemplate nowhere: not found; the set"}},
		"cycle":          {set: set("round", ""), alone: []string{`spec.templateRef: Invalid value: "round": SandboxTemplate round -> SandboxTemplate about -> SandboxTemplate round: the references go round`}},
		"foreign kind":   {set: set("foreign", ""), alone: []string{`spec.templateRef: Invalid value: "foreign": SandboxTemplate foreign -> `}},
		"no store":       {set: set("lost-t", ""), alone: []string{"Warning: spec.templateRef: could not be looked up, and is not checked: SandboxTemplate lost-t: etcd is down"}},
		"no cluster":     {set: set("core-lost", ""), alone: []string{"Warning: spec.templateRef: could not be looked up, and is not checked: "}},
		"bad at the end": {set: set("core-bad", ""), alone: []string{`spec.templateRef: Invalid value: "core-bad": leads to an invalid pod template: template.metadata.labels[e2b.`}},
		"bad at the end, with a patch that is not to blame": {
			set:   set("core-bad", `{"spec":{"hostname":"a"}}`),
			alone: []string{`spec.templateRef: Invalid value: "core-bad": leads to`},
		},
		"bad at the end, with a patch that makes it good": {set: set("core-bad", `{"metadata":{"labels":{"e2b.agents.kruise.io/x":null}}}`)},

		"no containers left":   {set: set("plain", `{"spec":{"containers":null}}`), alone: []string{"spec.patch.spec.containers: Required value: at least one container is required"}},
		"container of no name": {set: set("plain", `{"spec":{"containers":[{"image":"x"}]}}`), alone: []string{"spec.patch: Invalid value: SandboxTemplate plain: the patch cannot be applied"}},
		"container without an image": {
			set:   set("link", `{"spec":{"containers":[{"name":"side"}]}}`),
			alone: []string{`spec.patch: Invalid value: SandboxTemplate link -> SandboxTemplate plain: the patch cannot be applied: it names container "side", which spec.containers of the template does not have (there is main); one that is added needs an image`},
		},
		"wrong type":       {set: set("plain", `{"spec":{"containers":"x"}}`), alone: []string{"spec.patch.spec.containers: Invalid value: string where []v1.Container is expected"}},
		"patched label":    {set: set("plain", `{"metadata":{"labels":{"a":"x y"}}}`), alone: []string{`spec.patch.metadata.labels: Invalid value: "x y"`}},
		"unmounted volume": {set: set("plain", ""), dataClaim: true, alone: []string{`spec.volumeClaimTemplates[0].metadata.name: Invalid value: "data": must be mounted`}},
		"mounted by the patch": {
			set: set("plain", `{"spec":{"containers":[{"name":"main","volumeMounts":[{"name":"data","mountPath":"/data"}]}]}}`), dataClaim: true,
		},

		"refused by the cluster":                 {set: set("pinned", ""), with: []string{`spec.templateRef: Invalid value: "pinned": leads to an invalid pod template: template.spec.nodeName: Invalid value: "x": no`}},
		"patched, refused by the cluster":        {set: set("plain", `{"spec":{"nodeName":"x"}}`), with: []string{`spec.patch.spec.nodeName: Invalid value: "x": no`}},
		"refused without the patch too":          {set: set("pinned", `{"metadata":{"labels":{"a":"b"}}}`), with: []string{`spec.templateRef: Invalid value: "pinned": leads to`}},
		"patched into what the cluster takes":    {set: set("pinned", `{"spec":{"nodeName":null}}`)},
		"warned of by the cluster":               {set: set("named", ""), with: []string{"Warning: spec.templateRef: a host name"}},
		"patched, warned of by the cluster":      {set: set("named", "{}"), with: []string{"Warning: spec.patch: a host name"}},
		"patched into what the cluster warns of": {set: set("plain", `{"spec":{"hostname":"x"}}`), with: []string{"Warning: spec.patch: a host name"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.dataClaim {
				tc.set.Spec.VolumeClaimTemplates = []runtime.RawExtension{*raw(`{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)}
			}
			before := tc.set.DeepCopy()
			expect(t, flat(New(Options{Lookup: newStore()}).ValidateSet(t.Context(), tc.set)), tc.alone)
			expect(t, flat(New(Options{Lookup: newStore(), Pods: &cluster{}}).ValidateSet(t.Context(), tc.set)), append(tc.alone, tc.with...))
			if diff := cmp.Diff(before, tc.set); diff != "" {
				t.Errorf("the validator has changed the set (-want +got):\n%s", diff)
			}
		})
	}
}

// TestServicesOfTheTemplate: a set whose sandboxes have no valid names for Services is refused
// if its template has service: true, and a template that gets service: true warns of such sets.
func TestServicesOfTheTemplate(t *testing.T) {
	lookup := newStore()
	pool := set("plain", "")
	pool.Name = "py3.12"
	wanted := lookup.sandboxTemplates["plain"].DeepCopy()
	wanted.Spec.Service = new(true)
	sets := func(context.Context, string) ([]*v1alpha1.SandboxSet, error) {
		return []*v1alpha1.SandboxSet{pool, set("plain", "")}, nil
	}
	expect(t, New(Options{Lookup: lookup, Sets: sets}).WarnOfSets(t.Context(), wanted), []string{
		"SandboxSet py3.12 cannot follow this change, and keeps its sandboxes as they are: the template has service: true, but \"py3.12-",
	})
	expect(t, flat(New(Options{Lookup: lookup}).ValidateSet(t.Context(), pool)), nil)
	lookup.sandboxTemplates["plain"] = wanted
	expect(t, flat(New(Options{Lookup: lookup}).ValidateSet(t.Context(), pool)), []string{
		`spec.templateRef: Invalid value: "plain": has service: true, but "py3.12-`,
	})
}

// TestVolumesOfTheTemplate: the cluster is asked about pods with the volumes of the template
// that a set, or another template, refers to, whether or not a container mounts them.
func TestVolumesOfTheTemplate(t *testing.T) {
	lookup := newStore()
	volumes := []runtime.RawExtension{*raw(`{"metadata":{"name":"data"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)}
	lookup.sandboxTemplates["plain"].Spec.VolumeClaimTemplates = volumes
	own := template("own", plain)
	own.Spec.VolumeClaimTemplates = volumes
	for name, validate := range map[string]func(*Validator) (field.ErrorList, []string){
		"a set":      func(v *Validator) (field.ErrorList, []string) { return v.ValidateSet(t.Context(), set("link", "")) },
		"a template": func(v *Validator) (field.ErrorList, []string) { return v.ValidateTemplate(t.Context(), own) },
		"one that refers": func(v *Validator) (field.ErrorList, []string) {
			return v.ValidateTemplate(t.Context(), lookup.sandboxTemplates["link"])
		},
		"one that repeats": func(v *Validator) (field.ErrorList, []string) {
			repeats := referring("repeats", v1alpha1.SandboxTemplateRef{Name: "plain"})
			repeats.Spec.VolumeClaimTemplates = volumes
			return v.ValidateTemplate(t.Context(), repeats)
		},
	} {
		asked := &cluster{}
		expect(t, flat(validate(New(Options{Lookup: lookup, Pods: asked}))), nil)
		if len(asked.pods) != 1 {
			t.Fatalf("%s: the cluster was asked about %d pods", name, len(asked.pods))
		}
		inPod, _, _ := unstructured.NestedSlice(asked.pods[0].Object, "spec", "volumes")
		if len(inPod) != 1 || inPod[0].(map[string]any)["name"] != "data" {
			t.Errorf("%s: volumes of the pod: %v", name, inPod)
		}
	}
}

func TestValidateInline(t *testing.T) {
	s := set("", "")
	s.Spec.TemplateRef, s.Spec.Template = nil, raw(`{"spec":{"nodeName":"x","hostname":"y","containers":[{"name":"main","image":"busybox:1"}]}}`)
	want := []string{`spec.template.spec.nodeName: Invalid value: "x": no`, "Warning: spec.template: a host name"}
	pods := &cluster{}
	expect(t, flat(New(Options{Pods: pods}).ValidateSet(t.Context(), s)), want)
	// The same from a template of another name is the same question.
	expect(t, flat(New(Options{Pods: pods}).ValidateTemplate(t.Context(), template("other", string(s.Spec.Template.Raw)))), want)
	if diff := cmp.Diff(pods.pods[0], pods.pods[1]); diff != "" {
		t.Errorf("two questions (-set +template):\n%s", diff)
	}
	pod := pods.pods[0]
	if pod.GetNamespace() != namespace || pod.GetName() != "" || pod.GetGenerateName() == "" || len(pod.GetOwnerReferences()) > 0 {
		t.Errorf("asked about %v", pod.Object["metadata"])
	}
	if mount := pod.Object["spec"].(map[string]any)["automountServiceAccountToken"]; mount != false {
		t.Error("asked about another pod than one of a sandbox")
	}
}

func TestValidateTemplate(t *testing.T) {
	tests := map[string]struct {
		template *v1alpha1.SandboxTemplate
		want     []string
	}{
		"inline":    {template: template("new", plain)},
		"reference": {template: referring("new", v1alpha1.SandboxTemplateRef{Name: "link"})},
		"missing": {
			template: referring("new", v1alpha1.SandboxTemplateRef{Name: "open"}),
			want:     []string{"Warning: spec.templateRef: SandboxTemplate new -> SandboxTemplate open -> SandboxTemplate nowhere: not found; no sandbox can be made from this template until it exists"},
		},
		"circle through itself, which is not stored so yet": {
			template: referring("new", v1alpha1.SandboxTemplateRef{Name: "back"}),
			want:     []string{`spec.templateRef: Invalid value: "back": SandboxTemplate new -> SandboxTemplate back -> SandboxTemplate new: the references go round`},
		},
		"refused by the cluster": {
			template: referring("new", v1alpha1.SandboxTemplateRef{Name: "pinned"}),
			want:     []string{`spec.templateRef: Invalid value: "pinned": leads to an invalid pod template: template.spec.nodeName: `},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, flat(New(Options{Lookup: newStore(), Pods: &cluster{}}).ValidateTemplate(t.Context(), tc.template)), tc.want)
		})
	}
}

// TestMissingTemplate: a set with a pool continues, and only one that has never had a
// template stays empty.
func TestMissingTemplate(t *testing.T) {
	v := New(Options{Lookup: newStore()})
	const missing = "Warning: spec.templateRef: SandboxTemplate nowhere: not found; "
	lives := set("nowhere", "")
	lives.Status.UpdateRevision = "abc"
	expect(t, flat(v.ValidateSet(t.Context(), lives)), []string{missing + "until it exists the set continues with the pod template that it has"})
	expect(t, flat(v.ValidateSet(t.Context(), set("nowhere", ""))), []string{missing + "the set stays empty until it exists"})
}

// Of one template those sets are named that use it, also through others, and not too many.
func TestWarnOfDeletion(t *testing.T) {
	named := func(name string, s *v1alpha1.SandboxSet) *v1alpha1.SandboxSet { s.Name = name; return s }
	inline := named("inline", set("", ""))
	inline.Spec.TemplateRef, inline.Spec.Template = nil, raw(plain)
	going := named("going", set("plain", ""))
	going.DeletionTimestamp = &metav1.Time{}
	sets := []*v1alpha1.SandboxSet{named("through", set("link", "")), named("straight", set("plain", "{}")), named("elsewhere", set("named", "")), inline, going}
	v := New(Options{
		Lookup: newStore(),
		Sets:   func(context.Context, string) ([]*v1alpha1.SandboxSet, error) { return sets, nil },
	})
	const on = " in use: these SandboxSets continue with what they have of it, and cannot change until it exists again: "
	expect(t, v.WarnOfDeletion(t.Context(), namespace, []string{"plain"}), []string{"SandboxTemplate plain is" + on + "straight, through"})
	expect(t, v.WarnOfDeletion(t.Context(), namespace, []string{"link", "plain"}), []string{"templates that are deleted are" + on + "straight, through"})
	expect(t, v.WarnOfDeletion(t.Context(), namespace, []string{"unused"}), nil)
	expect(t, v.WarnOfDeletion(t.Context(), namespace, nil), nil)
	for i := range 3 * maxSetsNamed {
		sets = append(sets, named(fmt.Sprintf("s%d", i), set("plain", "")))
	}
	got := v.WarnOfDeletion(t.Context(), namespace, []string{"plain"})
	if len(got) != 1 || !strings.HasSuffix(got[0], "s17 and 22 more") {
		t.Errorf("%q", got)
	}
}

func TestWarnOfSets(t *testing.T) {
	named := func(name string, s *v1alpha1.SandboxSet) *v1alpha1.SandboxSet { s.Name = name; return s }
	inline := named("inline", set("", ""))
	inline.Spec.TemplateRef, inline.Spec.Template = nil, raw(plain)
	going := named("going", set("plain", `{"spec":{"containers":null}}`))
	going.DeletionTimestamp = &metav1.Time{}
	sets := []*v1alpha1.SandboxSet{
		named("good", set("plain", "")),
		named("through", set("link", `{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}`)),
		named("elsewhere", set("nowhere", "")), // bad, but not by this
		inline, going,
	}
	v := New(Options{
		Lookup: newStore(), Pods: &cluster{},
		Sets: func(_ context.Context, in string) ([]*v1alpha1.SandboxSet, error) {
			if in != namespace {
				return nil, fmt.Errorf("asked for %s", in)
			}
			return sets, nil
		},
	})
	expect(t, v.WarnOfSets(t.Context(), template("plain", plain)), nil)
	expect(t, v.WarnOfSets(t.Context(), template("plain", `{"spec":{"containers":[{"name":"side","image":"x"}]}}`)), []string{
		"SandboxSet through cannot follow this change, and keeps its sandboxes as they are: template.spec.containers: Required value",
	})
	expect(t, v.WarnOfSets(t.Context(), referring("plain", v1alpha1.SandboxTemplateRef{Name: "gone"})), []string{
		"SandboxSet good cannot follow this change, and keeps its sandboxes as they are: SandboxTemplate plain -> SandboxTemplate gone: not found",
		"SandboxSet through cannot follow this change",
	})

	sets = nil
	for i := range 3 * maxSetsNamed {
		sets = append(sets, named(fmt.Sprintf("s%d", i), set("plain", "")))
	}
	lookup := newStore()
	v.Lookup = lookup
	got := v.WarnOfSets(t.Context(), referring("plain", v1alpha1.SandboxTemplateRef{Name: "none", Kind: "PodTemplate"}))
	if len(got) != maxSetsNamed+1 || got[maxSetsNamed] != "and more sets like these" {
		t.Errorf("%d warnings: %q", len(got), got)
	}
	if len(lookup.asked) != 1 {
		t.Errorf("the cluster was asked for %q", lookup.asked)
	}

	v.Sets = func(context.Context, string) ([]*v1alpha1.SandboxSet, error) { return nil, errors.New("etcd is down") }
	expect(t, v.WarnOfSets(t.Context(), template("plain", plain)), []string{"the sets that use this template could not be looked up"})
}

// TestWarnOfSetsIsBounded: one change of a template merges and judges each content once,
// and no more of them than a request may cost, however many sets use it.
func TestWarnOfSetsIsBounded(t *testing.T) {
	patchOf := func(i, size int) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d","pad":%q}}}`, i, strings.Repeat("x", size))
	}
	// told is how many patches a change applies, and its warnings.
	told := func(sets, contents, size int) (int64, []string) {
		t.Helper()
		var all []*v1alpha1.SandboxSet
		for i := range sets {
			one := set("plain", patchOf(i%contents, size))
			other := set("link", patchOf(i, size)) // patches of sets of other templates cost nothing
			one.Name, other.Name, other.Spec.TemplateRef.Name = fmt.Sprintf("s%d", i), fmt.Sprintf("o%d", i), "pinned"
			all = append(all, one, other)
		}
		v := New(Options{
			Lookup: newStore(),
			Sets:   func(context.Context, string) ([]*v1alpha1.SandboxSet, error) { return all, nil },
		})
		before := podtemplate.Patched()
		warnings := v.WarnOfSets(t.Context(), template("plain", plain))
		return podtemplate.Patched() - before, warnings
	}
	if patches, warnings := told(500, 5, 0); patches != 5 || len(warnings) != 0 {
		t.Errorf("%d patches for 5 contents, warnings %q", patches, warnings)
	}
	for _, sets := range []int{500, 1000} {
		patches, warnings := told(sets, sets, 0)
		want := fmt.Sprintf("%d more sets use this template and are not checked here: see their condition TemplateResolved", sets-maxJudged)
		if patches != maxJudged || len(warnings) != 1 || warnings[0] != want {
			t.Errorf("%d patches for %d sets, warnings %q", patches, sets, warnings)
		}
	}
	// Each content is its patch and about as much of a pod template.
	const large = 60 << 10
	if patches, _ := told(500, 500, large); patches < 2 || patches > maxJudgedBytes/(2*large)+1 {
		t.Errorf("%d patches of %d bytes", patches, large)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	v := New(Options{Lookup: newStore(), Sets: func(context.Context, string) ([]*v1alpha1.SandboxSet, error) {
		return []*v1alpha1.SandboxSet{set("plain", patchOf(1, 0))}, nil
	}})
	before := podtemplate.Patched()
	expect(t, v.WarnOfSets(gone, template("plain", plain)), []string{"1 more sets use this template and are not checked here"})
	if patches := podtemplate.Patched() - before; patches != 0 {
		t.Errorf("%d patches for a client that is gone", patches)
	}
}
