// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
)

// create is the right to make sandboxes.
const create = "alice create sandboxes"

// template changes the pod template of a sandbox.
func template(json string) func(*v1alpha1.Sandbox) {
	return func(sb *v1alpha1.Sandbox) { sb.Spec.Template = &runtime.RawExtension{Raw: []byte(json)} }
}

// inAgents is the context of a request in a group of agent-sandbox.
func inAgents(ctx context.Context) context.Context {
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: v1alpha1.AgentsGroup, APIVersion: "v1beta1", Namespace: registrytest.Namespace, Resource: resource,
	})
}

// A change of the pod of a sandbox requires the right to create sandboxes. If the sandbox is bound
// to a claim, it also requires the right to bind, unless the user created the claim.
func TestRightsToChangeAPod(t *testing.T) {
	type changes = []func(*v1alpha1.Sandbox)
	var (
		image    = template(`{"spec":{"containers":[{"name":"main","image":"another:1"}]}}`)
		platform = template(`{"metadata":{"annotations":{"vault.hashicorp.com/agent-inject":"true"}},"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)
		ordinary = template(`{"metadata":{"annotations":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)
		agent    = annotated(v1alpha1.AnnotationAPI, v1alpha1.AgentsGroup)
		bound    = annotated(v1alpha1.AnnotationOwner, "1")
		by       = func(user string) func(*v1alpha1.Sandbox) {
			return labelled(v1alpha1.LabelClaimedBy, v1alpha1.ClaimedByLabel(user))
		}
	)
	for name, tc := range map[string]struct {
		old   changes
		write func(*v1alpha1.Sandbox)
		want  []string
	}{
		"free":                        {changes{agent}, image, []string{create}},
		"bound, of another user":      {changes{agent, bound, by("bob")}, image, []string{create, bind}},
		"bound, of this user":         {changes{agent, bound, by("alice")}, image, []string{create}},
		"bound, of an unknown user":   {changes{agent, bound}, image, []string{create, bind}},
		"locked by another program":   {changes{agent, annotated(v1alpha1.AnnotationLock, "x")}, image, []string{create, bind}},
		"claimed by another program":  {changes{agent, labelled(v1alpha1.LabelSandboxClaimed, "true")}, image, []string{create, bind}},
		"to be scaled down":           {changes{agent, annotated(v1alpha1.AnnotationOwner, v1alpha1.OwnerScaleDown)}, image, []string{create}},
		"claimed by name only":        {changes{agent, annotated(v1alpha1.AnnotationClaimedBy, "alice"), bound}, image, []string{create, bind}},
		"platform key, free":          {nil, platform, []string{create}},
		"platform key, bound":         {changes{bound, by("bob")}, platform, []string{create, bind}},
		"platform key, taken away":    {changes{platform, bound, by("bob")}, ordinary, []string{create, bind}},
		"ordinary metadata, bound":    {changes{agent, bound, by("bob")}, ordinary, nil},
		"suspended, of another user":  {changes{agent, bound, by("bob")}, func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true }, nil},
		"the same in other words":     {changes{agent, bound, by("bob")}, template(`{"spec":{"containers":[{"image":"busybox:1","name":"main","resources":{}}]}}`), nil},
		"metadata of a pool's member": {inPool, platform, []string{adopt, create}},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := registrytest.New(t)
			store, err := sandbox.NewStore(fixture.Scheme, fixture)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(store.Destroy)
			ctx := registrytest.Context(t, resource)
			sb := registrytest.NewSandbox("box")
			template(`{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)(sb)
			for _, change := range tc.old {
				change(sb)
			}
			made := ctx
			if v1alpha1.OfAgentSandbox(sb) {
				made = inAgents(ctx)
			}
			if _, err := store.Create(made, sb, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			write := func(may *rightList) (judged int, err error) {
				judge := func(_ context.Context, _ *v1alpha1.Sandbox, dryRun bool) error {
					judged++
					if !dryRun {
						return errors.New("it does not know of the dry run")
					}
					return nil
				}
				r := sandbox.NewREST(fixture.Scheme, store, may, nil, judge, nil).Sandbox
				_, _, err = r.Update(ctx, "box", changing(tc.write), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false,
					&metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
				return judged, err
			}
			all := &rightList{allowed: tc.want}
			judged, err := write(all)
			if err != nil {
				t.Errorf("with the rights: %v", err)
			}
			if changed := len(tc.want) > 0; changed != (judged == 1) {
				t.Errorf("judged %d times as a new one", judged)
			}
			if diff := cmp.Diff(tc.want, all.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			for i := range tc.want {
				less := &rightList{allowed: slices.Delete(slices.Clone(tc.want), i, i+1)}
				if judged, err := write(less); !apierrors.IsForbidden(err) || judged > 0 {
					t.Errorf("without %q: %v, judged %d times", tc.want[i], err, judged)
				}
			}
		})
	}
}

// A pod that is not admitted is not stored.
func TestPodChangeIsAdmittedAsCreate(t *testing.T) {
	fixture := registrytest.New(t)
	store, err := sandbox.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	ctx := inAgents(registrytest.Context(t, resource))
	if _, err := store.Create(ctx, registrytest.NewSandbox("box"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const another = `{"spec":{"containers":[{"image":"another:1","name":"main"}]}}`
	change := func(ctx context.Context, r rest.Updater) error {
		_, _, err := r.Update(ctx, "box", changing(template(another)), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		return err
	}
	denied := errors.New("a policy says no")
	r := sandbox.NewREST(fixture.Scheme, store, &rightList{allowed: []string{create}}, nil, func(_ context.Context, sb *v1alpha1.Sandbox, _ bool) error {
		if got := string(sb.Spec.Template.Raw); got != another {
			t.Errorf("asked about %s", got)
		}
		return denied
	}, nil).Sandbox
	if err := change(registrytest.Context(t, resource), r); !errors.Is(err, denied) {
		t.Errorf("got %v", err)
	}
	// The error names the field in the group of the request.
	const want = `spec.podTemplate: writing this field requires the verb "create" on sandboxes of agents.x-k8s.io`
	if err := change(ctx, r); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to say %s", err, want)
	}
}

// specWrites returns updates of a sandbox, by the field of the spec that they change.
func specWrites() map[string]func(*v1alpha1.Sandbox) {
	day := metav1.NewTime(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC))
	return map[string]func(*v1alpha1.Sandbox){
		"paused": func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true },
		"pauseStrategy": func(sb *v1alpha1.Sandbox) {
			sb.Spec.PauseStrategy = &v1alpha1.PauseStrategy{Type: v1alpha1.PauseStrategyStop}
		},
		"persistentContents": func(sb *v1alpha1.Sandbox) { sb.Spec.PersistentContents = []string{v1alpha1.PersistentContentIP} },
		"shutdownTime":       func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &day },
		"shutdownPolicy":     func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownPolicy = v1alpha1.ShutdownDelete },
		"pauseTime":          func(sb *v1alpha1.Sandbox) { sb.Spec.PauseTime = &day },
		"runtimes":           func(sb *v1alpha1.Sandbox) { sb.Spec.Runtimes = []v1alpha1.RuntimeConfig{{Name: "agent-runtime"}} },
		"service":            func(sb *v1alpha1.Sandbox) { sb.Spec.Service = new(true) },
		"lifecycle":          func(sb *v1alpha1.Sandbox) { sb.Spec.Lifecycle = &v1alpha1.SandboxLifecycle{} },
		"upgradePolicy":      func(sb *v1alpha1.Sandbox) { sb.Spec.UpgradePolicy = &v1alpha1.SandboxUpgradePolicy{} },
		"templateRef": func(sb *v1alpha1.Sandbox) {
			sb.Spec.Template, sb.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: "other"}
		},
		"template: metadata": template(`{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`),
		"template: all else": template(`{"spec":{"containers":[{"name":"main","image":"another:1"}]}}`),
		"volumeClaimTemplates": func(sb *v1alpha1.Sandbox) {
			sb.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(
				`{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)}}
		},
	}
}

// The table of docs/security.md says for each field of a sandbox whether a user who may only update
// sandboxes can change it, if the sandbox is of agent-sandbox and another user has claimed it.
func TestSandboxTableMatchesServer(t *testing.T) {
	writes := specWrites()
	inOtherWords := []string{"podTemplate", "operatingMode", "replicas"}
	fixture := registrytest.New(t)
	store, err := sandbox.NewStore(fixture.Scheme, fixture)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	ctx := inAgents(registrytest.Context(t, resource))
	sb := registrytest.NewSandbox("box")
	template(`{"spec":{"containers":[{"name":"main","image":"busybox:1"}]}}`)(sb)
	annotated(v1alpha1.AnnotationOwner, "1")(sb)
	labelled(v1alpha1.LabelClaimedBy, v1alpha1.ClaimedByLabel("bob"))(sb)
	if _, err := store.Create(ctx, sb, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := sandbox.NewREST(fixture.Scheme, store, &rightList{}, nil, nil, nil).Sandbox
	for _, row := range registrytest.FieldTables(t)["Sandbox"] {
		for _, name := range row.Fields {
			if slices.Contains(inOtherWords, name) {
				continue
			}
			if row.Part != "" {
				name += ": " + strings.Trim(row.Part, "`")
			}
			write := writes[name]
			if write == nil {
				t.Errorf("nothing writes %s", name)
				continue
			}
			_, _, err := r.Update(ctx, "box", changing(write), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false,
				&metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			says, _, _ := strings.Cut(row.Update, ":")
			is := map[bool]string{true: "allowed"}[err == nil]
			switch {
			case apierrors.IsForbidden(err):
				is = "right"
			case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "immutable"):
				is = "immutable"
			case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "not supported"):
				is = "refused"
			}
			if is != says {
				t.Errorf("%s: the table says %q, and the update is answered with %v", name, says, err)
			}
		}
	}
}
