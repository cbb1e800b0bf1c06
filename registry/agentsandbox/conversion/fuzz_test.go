// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"math/rand"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apifuzzer "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/randfill"

	extensionsv1alpha1 "github.com/sandlot-io/sandlot/apis/extensions/v1alpha1"
	extensionsv1beta1 "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/fuzzer"
	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandbox"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxclaim"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxset"
	"github.com/sandlot-io/sandlot/registry/sandbox/sandboxtemplate"
)

// rounds is how often each kind is filled anew.
const rounds = 100

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme
}

func newFiller(scheme *runtime.Scheme) *randfill.Filler {
	funcs := apifuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzer.Funcs, fuzzer.AgentSandboxFuncs)
	return apifuzzer.FuzzerFor(funcs, rand.NewSource(rand.Int63()), serializer.NewCodecFactory(scheme))
}

// kinds are what is served in several groups: the kind there, an empty object as it is
// stored, and the strategies of the main resource and of the status.
func kinds(scheme *runtime.Scheme) map[string]struct {
	group, kind  string
	empty        runtime.Object
	main, status base.UpdateStrategy
} {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC))
	claims := sandboxclaim.NewStrategy(scheme, now, validation.DefaultClaimLimits())
	sets := sandboxset.NewStrategy(scheme, nil)
	sandboxes := sandbox.NewStrategy(scheme, now)
	type kind = struct {
		group, kind  string
		empty        runtime.Object
		main, status base.UpdateStrategy
	}
	return map[string]kind{
		"claims":    {v1alpha1.ExtensionsGroup, "SandboxClaim", &v1alpha1.SandboxClaim{}, claims, sandboxclaim.NewStatusStrategy(claims)},
		"pools":     {v1alpha1.ExtensionsGroup, "SandboxWarmPool", &v1alpha1.SandboxSet{}, sets, sandboxset.NewStatusStrategy(sets)},
		"templates": {v1alpha1.ExtensionsGroup, "SandboxTemplate", &v1alpha1.SandboxTemplate{}, sandboxtemplate.NewStrategy(scheme, nil), nil},
		"sandboxes": {v1alpha1.AgentsGroup, "Sandbox", &v1alpha1.Sandbox{}, sandboxes, sandbox.NewStatusStrategy(sandboxes)},
	}
}

// in returns the context of a request that is made in a version.
func in(version schema.GroupVersion) context.Context {
	return genericapirequest.WithRequestInfo(context.Background(), &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: version.Group, APIVersion: version.Version,
	})
}

func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// filled is an object as it can be stored: a claim says once where its sandboxes come from, a
// template is written out or named.
func filled(fill *randfill.Filler, empty runtime.Object) runtime.Object {
	stored := empty.DeepCopyObject()
	fill.Fill(stored)
	one := rand.Intn(3)
	embedded := func(spec *v1alpha1.EmbeddedSandboxTemplate) {
		if one == 0 || spec.TemplateRef == nil {
			spec.TemplateRef = nil
			fill.Fill(&spec.Template)
			return
		}
		spec.Template, spec.VolumeClaimTemplates = nil, nil
	}
	switch stored := stored.(type) {
	case *v1alpha1.SandboxClaim:
		spec := &stored.Spec
		pool, template, name := "pool", "template", "set"
		spec.WarmPoolRef, spec.SandboxTemplateRef, spec.TemplateName = nil, nil, ""
		switch one {
		case 0:
			spec.TemplateName = name
		case 1:
			spec.WarmPoolRef = &v1alpha1.SandboxClaimWarmPoolRef{Name: pool}
		default:
			spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: template}
		}
	case *v1alpha1.SandboxSet:
		if stored.Spec.Replicas == nil { // which is required
			stored.Spec.Replicas = new(int32)
		}
		embedded(&stored.Spec.EmbeddedSandboxTemplate)
	case *v1alpha1.SandboxTemplate:
		embedded(&stored.Spec.EmbeddedSandboxTemplate)
	case *v1alpha1.Sandbox:
		embedded(&stored.Spec.EmbeddedSandboxTemplate)
	}
	return stored
}

// sayWhere has what is written say where its sandboxes come from, without which it is not
// taken.
func sayWhere(written runtime.Object) {
	switch written := written.(type) {
	case *extensionsv1beta1.SandboxClaim:
		if written.Spec.WarmPoolRef == nil && written.Spec.SandboxTemplateRef == nil {
			written.Spec.WarmPoolRef = &extensionsv1beta1.SandboxWarmPoolRef{Name: "other"}
		}
		if written.Spec.WarmPool = ""; written.Spec.SandboxTemplateRef != nil {
			written.Spec.WarmPool = extensionsv1beta1.WarmPoolNone // what is left out is as it was
		}
	case *extensionsv1alpha1.SandboxClaim:
		if written.Spec.SandboxTemplateRef.Name == "" {
			written.Spec.SandboxTemplateRef.Name = "other"
		}
	case *extensionsv1beta1.SandboxTemplate:
		written.Spec.PodTemplate = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[]}}`)}
	case *extensionsv1alpha1.SandboxTemplate:
		written.Spec.PodTemplate = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[]}}`)}
	}
}

// Who reads an object in another version, and writes it back as it is, changes nothing,
// whatever that version cannot say.
func TestReadAndWrittenBack(t *testing.T) {
	t.Parallel()
	scheme := newScheme()
	fill, carrier := newFiller(scheme), Carrier{scheme}
	for name, kind := range kinds(scheme) {
		for _, version := range scheme.PrioritizedVersionsForGroup(kind.group) {
			for resource, strategy := range map[string]base.UpdateStrategy{name: kind.main, name + "/status": kind.status} {
				if strategy == nil {
					continue
				}
				served := updateStrategy{strategy, secondGroup{carrier, &Words{}, nil}}
				for range rounds {
					stored := filled(fill, kind.empty)
					updated, err := carrier.asSeen(stored, version)
					if err != nil {
						t.Fatal(err)
					}
					before := stored.DeepCopyObject()
					served.PrepareForUpdate(in(version), updated, stored)
					// What other strategies tidy up at every write is no loss.
					same := stored.DeepCopyObject()
					strategy.PrepareForUpdate(in(v1alpha1.SchemeGroupVersion), same, stored)
					if !apiequality.Semantic.DeepEqual(same, updated) {
						t.Fatalf("%s through %s: (-want +got)\n%s", resource, version, cmp.Diff(same, updated))
					}
					if !apiequality.Semantic.DeepEqual(before, stored) {
						t.Fatalf("%s through %s: the stored object was changed\n%s", resource, version, cmp.Diff(before, stored))
					}
				}
			}
		}
	}
}

// Whatever a writer says in another version is as it says afterwards, and to carry twice is
// to carry once.
func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	scheme := newScheme()
	fill, carrier := newFiller(scheme), Carrier{scheme}
	for name, kind := range kinds(scheme) {
		for _, version := range scheme.PrioritizedVersionsForGroup(kind.group) {
			for range rounds {
				stored := filled(fill, kind.empty)
				written, err := scheme.New(version.WithKind(kind.kind))
				if err != nil {
					t.Fatal(err)
				}
				fill.Fill(written)
				sayWhere(written)
				// Metadata is not carried, and the same in every version.
				part(written, "ObjectMeta").Set(part(stored, "ObjectMeta"))
				hub, err := scheme.ConvertToVersion(written.DeepCopyObject(), schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal})
				if err != nil {
					t.Fatal(err)
				}
				if err := carrier.Carry(hub, stored, version); err != nil {
					t.Fatal(err)
				}
				again := hub.DeepCopyObject()
				if err := carrier.Carry(again, stored, version); err != nil {
					t.Fatal(err)
				}
				if !apiequality.Semantic.DeepEqual(hub, again) {
					t.Fatalf("%s of %s, carried twice: (-once +twice)\n%s", name, version, cmp.Diff(hub, again))
				}
				read, err := scheme.ConvertToVersion(hub, version)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := part(read, "Spec").Interface(), part(written, "Spec").Interface(); !apiequality.Semantic.DeepEqual(got, want) {
					t.Fatalf("%s of %s: (-written +read)\n%s\nstored: %+v", name, version, cmp.Diff(want, got), part(stored, "Spec"))
				}
			}
		}
	}
}
