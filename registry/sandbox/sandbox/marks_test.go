// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

// rightList allows what is listed, and notes what it is asked.
type rightList struct {
	allowed, asked []string
}

func (r *rightList) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	question := strings.TrimSpace(a.GetUser().GetName() + " " + a.GetVerb() + " " + a.GetResource() + " " + a.GetName())
	if !a.IsResourceRequest() || a.GetNamespace() != registrytest.Namespace || a.GetAPIGroup() != v1alpha1.GroupName {
		question += " elsewhere"
	}
	r.asked = append(r.asked, question)
	if slices.Contains(r.allowed, question) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

const (
	adopt = "alice adopt sandboxsets pool"
	bind  = "alice bind sandboxclaims"
)

func ownedBy(kind string, controller bool) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) {
		sb.OwnerReferences = append(sb.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: "pool", UID: "1", Controller: &controller,
		})
	}
}

func annotated(key, value string) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) { metav1.SetMetaDataAnnotation(&sb.ObjectMeta, key, value) }
}

func labelled(key, value string) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) { metav1.SetMetaDataLabel(&sb.ObjectMeta, key, value) }
}

func refersTo(template string) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) {
		sb.Spec.Template, sb.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: template}
	}
}

func held(finalizers ...string) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) { sb.Finalizers = finalizers }
}

func paused(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }

var inPool = []func(*v1alpha1.Sandbox){
	ownedBy("SandboxSet", true), labelled(v1alpha1.LabelSandboxPool, "pool"), labelled(v1alpha1.LabelSandboxClaimed, "false"),
	annotated("mine", "yes"),
}

// Who may write sandboxes may not write what they are believed by.
func TestMarks(t *testing.T) {
	type changes = []func(*v1alpha1.Sandbox)
	foreign := func(sb *v1alpha1.Sandbox) {
		sb.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "SandboxSet", Name: "pool", UID: "1", Controller: new(true)}}
	}
	disowned := func(sb *v1alpha1.Sandbox) { sb.OwnerReferences = nil }
	tests := map[string]struct {
		old   changes // nil for a create
		write changes
		want  string // the right that it takes
		field string
	}{
		"plain":                              {write: changes{labelled("a", "b"), annotated("a", "b")}},
		"an owner of another group":          {write: changes{foreign}},
		"claimed by no one":                  {write: changes{labelled(v1alpha1.LabelSandboxClaimed, "false")}},
		"labels of a pool that it is not in": {write: changes{labelled(v1alpha1.LabelSandboxPool, "pool"), labelled(v1alpha1.LabelTemplateHash, "x")}},
		"born in a pool":                     {write: inPool, want: adopt, field: "metadata.ownerReferences"},
		"owned by a set, not controlled":     {write: changes{ownedBy("SandboxSet", false)}, want: adopt, field: "metadata.ownerReferences"},
		"owned by a claim":                   {write: changes{ownedBy("SandboxClaim", true)}, want: bind, field: "metadata.ownerReferences"},
		"who reaches a sandbox of E2B":       {write: changes{annotated(v1alpha1.AnnotationE2BPrivate, "")}, want: bind, field: "metadata.annotations[e2b.agents.kruise.io/private-traffic]"},
		"the key of a sandbox of E2B":        {write: changes{annotated(v1alpha1.AnnotationE2BKeyID, "x")}, want: bind, field: "metadata.annotations[e2b.agents.kruise.io/key-id]"},
		"a sealed request":                   {write: changes{annotated(v1alpha1.AnnotationInitRuntimeRequest, "x")}, want: bind, field: "metadata.annotations[agents.kruise.io/init-runtime-request]"},
		"locked":                             {write: changes{annotated(v1alpha1.AnnotationLock, "x")}, want: bind, field: "metadata.annotations[agents.kruise.io/lock]"},
		"owner":                              {write: changes{annotated(v1alpha1.AnnotationOwner, "x")}, want: bind, field: "metadata.annotations[agents.kruise.io/owner]"},
		"date":                               {write: changes{annotated(v1alpha1.AnnotationClaimTimestamp, "x")}, want: bind, field: "metadata.annotations[agents.kruise.io/claim-timestamp]"},
		"starting":                           {write: changes{annotated(v1alpha1.AnnotationStarting, "true")}, want: bind, field: "metadata.annotations[sandlot.io/starting]"},
		"claimed by":                         {write: changes{annotated(v1alpha1.AnnotationClaimedBy, "bob")}, want: bind, field: "metadata.annotations[sandlot.io/claimed-by]"},
		"label of who claimed":               {write: changes{labelled(v1alpha1.LabelClaimedBy, "x")}, want: bind, field: "metadata.labels[sandlot.io/claimed-by]"},
		"name of a claim":                    {write: changes{labelled(v1alpha1.LabelClaimName, "x")}, want: bind, field: "metadata.labels[agents.kruise.io/claim-name]"},
		"claimed":                            {write: changes{labelled(v1alpha1.LabelSandboxClaimed, "true")}, want: bind, field: "metadata.labels[agents.kruise.io/sandbox-claimed]"},
		"reserved":                           {write: changes{labelled(v1alpha1.LabelReservedFailedSandbox, "true")}, want: bind, field: "metadata.labels[agents.kruise.io/reserved-failed-sandbox]"},

		"the label of its template": {write: changes{refersTo("locked"), labelled(v1alpha1.LabelSandboxTemplate, "locked")}},
		"its template alone":        {write: changes{refersTo("locked")}},
		"the label of another template": {
			write: changes{refersTo("locked"), labelled(v1alpha1.LabelSandboxTemplate, "none")}, want: bind, field: "metadata.labels[agents.kruise.io/sandbox-template]",
		},
		"no label of its template": {
			write: changes{refersTo("locked"), labelled(v1alpha1.LabelSandboxTemplate, "")}, want: bind, field: "metadata.labels[agents.kruise.io/sandbox-template]",
		},
		"labelled as its pool": {write: append(slices.Clone(inPool), refersTo("pool-1"), labelled(v1alpha1.LabelSandboxTemplate, "pool")), want: adopt, field: "metadata.ownerReferences"},

		"into a pool":             {old: changes{}, write: changes{ownedBy("SandboxSet", true)}, want: adopt, field: "metadata.ownerReferences"},
		"made the controller":     {old: changes{ownedBy("SandboxSet", false)}, write: changes{disowned, ownedBy("SandboxSet", true)}, want: adopt, field: "metadata.ownerReferences"},
		"out of a pool":           {old: inPool, write: changes{disowned}, want: adopt, field: "metadata.ownerReferences"},
		"deletion is not blocked": {old: inPool, write: changes{func(sb *v1alpha1.Sandbox) { sb.OwnerReferences[0].BlockOwnerDeletion = new(false) }}},
		"a lock in a pool":        {old: inPool, write: changes{annotated(v1alpha1.AnnotationLock, "x")}, want: bind, field: "metadata.annotations[agents.kruise.io/lock]"},
		"another revision":        {old: inPool, write: changes{labelled(v1alpha1.LabelTemplateHash, "x")}, want: adopt, field: "metadata.labels[agents.kruise.io/template-hash]"},
		"its address in a pool":   {old: inPool, write: changes{annotated(v1alpha1.AnnotationRuntimeURL, "http://evil")}, want: adopt, field: "metadata.annotations[agents.kruise.io/runtime-url]"},
		"out of selectors":        {old: inPool, write: changes{func(sb *v1alpha1.Sandbox) { delete(sb.Labels, v1alpha1.LabelSandboxClaimed) }}, want: adopt, field: "metadata.labels[agents.kruise.io/sandbox-claimed]"},
		"template metadata in a pool": {old: inPool, write: changes{func(sb *v1alpha1.Sandbox) {
			sb.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)}
		}}, want: adopt, field: "spec.template"},
		"a trace in a pool":       {old: inPool, write: changes{annotated(v1alpha1.AgentAnnotationTraceContext, "{}")}, want: adopt, field: "metadata.annotations[opentelemetry.io/trace-context]"},
		"held in a pool":          {old: inPool, write: changes{held("example.com/hold")}, want: adopt, field: "metadata.finalizers"},
		"held by more in a pool":  {old: append(slices.Clone(inPool), held("example.com/hold")), write: changes{held("example.com/hold", "example.com/more")}, want: adopt, field: "metadata.finalizers"},
		"let go in a pool":        {old: append(slices.Clone(inPool), held("example.com/hold")), write: changes{held()}},
		"held and not in a pool":  {old: changes{}, write: changes{held("example.com/hold")}},
		"what users do in a pool": {old: inPool, write: changes{labelled("a", "b"), annotated("mine", "no"), annotated(corev1.LastAppliedConfigAnnotation, "{}"), paused}},
		"resumed in a pool":       {old: append(slices.Clone(inPool), paused), write: changes{func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = false }}},
		"what users do with their own": {old: changes{annotated(v1alpha1.AnnotationLock, "x")}, write: changes{
			labelled("a", "b"), annotated(v1alpha1.AnnotationRuntimeURL, "http://mine"),
			func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true },
			func(sb *v1alpha1.Sandbox) {
				sb.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)}
			},
		}},
		// Who may write sandboxes may end each one anyway.
		"owned by the claim that it is bound to": {
			old:   changes{annotated(v1alpha1.AnnotationOwner, "1"), labelled(v1alpha1.LabelClaimName, "pool")},
			write: changes{ownedBy("SandboxClaim", true)},
		},
		"its claim waits for it": {
			old:   changes{annotated(v1alpha1.AnnotationOwner, "1"), labelled(v1alpha1.LabelClaimName, "pool"), ownedBy("SandboxClaim", false)},
			write: changes{func(sb *v1alpha1.Sandbox) { sb.OwnerReferences[0].BlockOwnerDeletion = new(true) }},
		},
		"owned by another claim of the name": {
			old:   changes{annotated(v1alpha1.AnnotationOwner, "2"), labelled(v1alpha1.LabelClaimName, "pool")},
			write: changes{ownedBy("SandboxClaim", true)}, want: bind, field: "metadata.ownerReferences",
		},
		"owned by the claim under another name": {
			old:   changes{annotated(v1alpha1.AnnotationOwner, "1"), labelled(v1alpha1.LabelClaimName, "other")},
			write: changes{ownedBy("SandboxClaim", true)}, want: bind, field: "metadata.ownerReferences",
		},
		"owned by a set of the name of the claim": {
			old:   changes{annotated(v1alpha1.AnnotationOwner, "1"), labelled(v1alpha1.LabelClaimName, "pool")},
			write: changes{ownedBy("SandboxSet", true)}, want: adopt, field: "metadata.ownerReferences",
		},
		"taken from its claim": {
			old:   changes{annotated(v1alpha1.AnnotationOwner, "1"), labelled(v1alpha1.LabelClaimName, "pool"), ownedBy("SandboxClaim", true)},
			write: changes{disowned}, want: bind, field: "metadata.ownerReferences",
		},
		"unlocked": {old: changes{annotated(v1alpha1.AnnotationLock, "x")}, write: changes{func(sb *v1alpha1.Sandbox) { sb.Annotations = nil }},
			want: bind, field: "metadata.annotations[agents.kruise.io/lock]"},
		"no longer claimed": {old: changes{labelled(v1alpha1.LabelSandboxClaimed, "true")}, write: changes{labelled(v1alpha1.LabelSandboxClaimed, "false")},
			want: bind, field: "metadata.labels[agents.kruise.io/sandbox-claimed]"},
	}
	fixture := registrytest.New(t)
	store, err := sandbox.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	living := func(context.Context, string, *metav1.OwnerReference) (metav1.Object, error) {
		return &metav1.ObjectMeta{}, nil
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx := registrytest.Context(t, resource)
			write := func(may *rightList) error {
				r := sandbox.NewREST(fixture.Scheme, store, may, living, nil, nil).Sandbox
				sb := registrytest.NewSandbox(strings.ReplaceAll(strings.ToLower(name), " ", "-"))
				sb.Name = strings.ReplaceAll(sb.Name, ",", "")
				if tc.old == nil {
					for _, change := range tc.write {
						change(sb)
					}
					_, err := r.Create(ctx, sb, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return err
				}
				for _, change := range tc.old {
					change(sb)
				}
				if _, err := store.Create(ctx, sb, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
					t.Fatal(err)
				}
				_, _, err := r.Update(ctx, sb.Name, changing(tc.write...), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false,
					&metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			}
			without := &rightList{}
			err := write(without)
			if tc.want == "" {
				if err != nil || len(without.asked) > 0 {
					t.Errorf("refused with %v after asking for %q", err, without.asked)
				}
				return
			}
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.field) || !strings.Contains(err.Error(), `"`+strings.Fields(tc.want)[1]+`"`) {
				t.Errorf("without the right: %v, want Forbidden that names %s and the verb of %q", err, tc.field, tc.want)
			}
			if diff := cmp.Diff([]string{tc.want}, without.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if err := write(&rightList{allowed: []string{tc.want}}); err != nil {
				t.Errorf("with the right: %v", err)
			}
		})
	}
}

// TestSpecInPool checks that the spec of a sandbox in a pool cannot be changed without the right to
// adopt, whichever field it is. An update of a field that is added to the spec must be decided here.
func TestSpecInPool(t *testing.T) {
	// harmless are the fields that a user can change without the right, and why.
	harmless := map[string]string{
		"paused": "a paused sandbox is not claimed, and a resumed one has a new pod of the same template",
	}
	specs := specWrites()
	fixture := registrytest.New(t)
	store, err := sandbox.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	ctx := registrytest.Context(t, resource)
	sb := registrytest.NewSandbox("free")
	for _, change := range inPool {
		change(sb)
	}
	if _, err := store.Create(ctx, sb, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range registrytest.FieldsOf(reflect.TypeFor[v1alpha1.SandboxSpec]()) {
		writes := slices.DeleteFunc(slices.Sorted(maps.Keys(specs)), func(key string) bool { return key != name && !strings.HasPrefix(key, name+":") })
		if len(writes) == 0 {
			t.Errorf("nothing writes spec.%s", name)
		}
		for _, key := range writes {
			may := &rightList{}
			r := sandbox.NewREST(fixture.Scheme, store, may, nil, nil, nil).Sandbox
			_, _, err := r.Update(ctx, "free", changing(specs[key]), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false,
				&metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case harmless[name] != "":
				if err != nil || len(may.asked) > 0 {
					t.Errorf("%s: refused with %v after asking for %q", key, err, may.asked)
				}
			case apierrors.IsInvalid(err) && (strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "not supported")): // for everyone
			case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec."+name+":") || !slices.Equal(may.asked, []string{adopt}):
				t.Errorf("%s: got %v after asking for %q, want Forbidden after asking for %q", key, err, may.asked, adopt)
			}
		}
	}
}

func changing(changes ...func(*v1alpha1.Sandbox)) rest.UpdatedObjectInfo {
	return rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		sb := old.DeepCopyObject().(*v1alpha1.Sandbox)
		for _, change := range changes {
			change(sb)
		}
		return sb, nil
	})
}

// TestRightsOfAgentSandbox checks that a sandbox that is made in the group of agent-sandbox takes no other rights
// than one of OpenKruise's group. That the server notes the group on it takes none.
func TestRightsOfAgentSandbox(t *testing.T) {
	fixture := registrytest.New(t)
	store, err := sandbox.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	ctx := genericapirequest.WithRequestInfo(registrytest.Context(t, resource), &genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: v1alpha1.AgentsGroup, APIVersion: "v1beta1", Resource: "sandboxes", Namespace: registrytest.Namespace,
	})
	may := &rightList{}
	r := sandbox.NewREST(fixture.Scheme, store, may, nil, nil, nil).Sandbox
	for i, key := range []string{"", v1alpha1.AnnotationAPI, v1alpha1.AnnotationStarting} {
		sb := registrytest.NewSandbox(fmt.Sprint("sandbox-", i))
		if key != "" {
			annotated(key, "forged")(sb)
		}
		created, err := r.Create(ctx, sb, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if key == v1alpha1.AnnotationStarting {
			if !apierrors.IsForbidden(err) {
				t.Errorf("with %s: %v, want Forbidden", key, err)
			}
			continue
		}
		if err != nil || created.(*v1alpha1.Sandbox).Annotations[v1alpha1.AnnotationAPI] != v1alpha1.AgentsGroup {
			t.Errorf("with %q: created %v, %v", key, created, err)
		}
	}
}

// Garbage collectors take away references to owners that are gone or being deleted,
// with the rights to write sandboxes alone.
func TestEndedOwner(t *testing.T) {
	fixture := registrytest.New(t)
	store, err := sandbox.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	deleted := metav1.Now()
	for name, tc := range map[string]struct {
		owner metav1.Object
		kept  bool
	}{
		"gone":   {nil, false},
		"ending": {&metav1.ObjectMeta{UID: "1", DeletionTimestamp: &deleted}, false},
		"living": {&metav1.ObjectMeta{UID: "1"}, true},
	} {
		for _, kind := range []string{"SandboxSet", "SandboxClaim"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				ctx := registrytest.Context(t, resource)
				var read []types.UID
				r := sandbox.NewREST(fixture.Scheme, store, &rightList{}, func(_ context.Context, _ string, ref *metav1.OwnerReference) (metav1.Object, error) {
					read = append(read, ref.UID)
					return tc.owner, nil
				}, nil, nil).Sandbox
				sb := registrytest.NewSandbox(name + "-" + strings.ToLower(kind))
				ownedBy(kind, true)(sb)
				if _, err := store.Create(ctx, sb, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				_, _, err := r.Update(ctx, sb.Name, changing(func(sb *v1alpha1.Sandbox) { sb.OwnerReferences = nil }),
					rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
				if tc.kept != apierrors.IsForbidden(err) || !tc.kept && err != nil {
					t.Errorf("got %v", err)
				}
				if len(read) != 1 || read[0] != "1" {
					t.Errorf("read the owners %q", read)
				}
			})
		}
	}
}
