// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	apifuzzer "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	agentsv1alpha1 "github.com/sandlot-io/sandlot/apis/agents/v1alpha1"
	agentsv1beta1 "github.com/sandlot-io/sandlot/apis/agents/v1beta1"
	extensionsv1alpha1 "github.com/sandlot-io/sandlot/apis/extensions/v1alpha1"
	extensionsv1beta1 "github.com/sandlot-io/sandlot/apis/extensions/v1beta1"
	"github.com/sandlot-io/sandlot/apis/sandbox/fuzzer"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const rounds = 50

func install(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	Install(scheme)
	return scheme
}

func filler(scheme *runtime.Scheme) *randfill.Filler {
	codecs := serializer.NewCodecFactory(scheme)
	funcs := apifuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzer.Funcs, fuzzer.AgentSandboxFuncs)
	return apifuzzer.FuzzerFor(funcs, rand.NewSource(rand.Int63()), codecs)
}

func internal(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
}

// stored are the kinds as they are stored, with the name they have in agent-sandbox.
var stored = map[string]schema.GroupVersionKind{
	"SandboxClaim":    {Group: v1alpha1.ExtensionsGroup, Kind: "SandboxClaim"},
	"SandboxTemplate": {Group: v1alpha1.ExtensionsGroup, Kind: "SandboxTemplate"},
	"SandboxSet":      {Group: v1alpha1.ExtensionsGroup, Kind: "SandboxWarmPool"},
	"Sandbox":         {Group: v1alpha1.AgentsGroup, Kind: "Sandbox"},
}

// The generic server asks the scheme of what kind an object is. In a group it finds the kind
// of that group; without one it has to find what is stored.
func TestStoredTypesAreKindsOfBothGroups(t *testing.T) {
	scheme := install(t)
	for kind, other := range stored {
		for _, suffix := range []string{"", "List"} {
			object, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(kind + suffix))
			if err != nil {
				t.Fatal(err)
			}
			got, unversioned, err := scheme.ObjectKinds(object)
			want := []schema.GroupVersionKind{
				v1alpha1.SchemeGroupVersion.WithKind(kind + suffix),
				internal(v1alpha1.GroupName).WithKind(kind + suffix),
				internal(other.Group).WithKind(other.Kind + suffix),
			}
			if err != nil || unversioned || !reflect.DeepEqual(got, want) {
				t.Errorf("%T is %v, %v; want %v", object, got, err, want)
			}
		}
	}
}

func TestVersionsOfAgentSandbox(t *testing.T) {
	scheme := install(t)
	for group, want := range map[string][]schema.GroupVersion{
		v1alpha1.AgentsGroup:     {agentsv1beta1.SchemeGroupVersion, agentsv1alpha1.SchemeGroupVersion},
		v1alpha1.ExtensionsGroup: {extensionsv1beta1.SchemeGroupVersion, extensionsv1alpha1.SchemeGroupVersion},
	} {
		if got := scheme.PrioritizedVersionsForGroup(group); !reflect.DeepEqual(got, want) {
			t.Errorf("versions %v, want %v", got, want)
		}
	}
}

// Custom resources can be selected by name and namespace, and by nothing else.
func TestFieldLabelsOfAgentSandbox(t *testing.T) {
	scheme := install(t)
	for _, gvk := range []schema.GroupVersionKind{
		extensionsv1beta1.SchemeGroupVersion.WithKind("SandboxClaim"), extensionsv1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"),
		extensionsv1beta1.SchemeGroupVersion.WithKind("SandboxWarmPool"), agentsv1beta1.SchemeGroupVersion.WithKind("Sandbox"),
	} {
		for label, known := range map[string]bool{"metadata.name": true, "metadata.namespace": true, "status.phase": false} {
			if _, _, err := scheme.ConvertFieldLabel(gvk, label, "x"); (err == nil) != known {
				t.Errorf("%s of %v: %v", label, gvk, err)
			}
		}
	}
}

// converted are the kinds of agent-sandbox that have conversions, with what each is stored as.
var converted = map[schema.GroupVersionKind]string{
	extensionsv1beta1.SchemeGroupVersion.WithKind("SandboxClaim"):     "SandboxClaim",
	extensionsv1beta1.SchemeGroupVersion.WithKind("SandboxTemplate"):  "SandboxTemplate",
	extensionsv1beta1.SchemeGroupVersion.WithKind("SandboxWarmPool"):  "SandboxSet",
	extensionsv1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"):    "SandboxClaim",
	extensionsv1alpha1.SchemeGroupVersion.WithKind("SandboxTemplate"): "SandboxTemplate",
	extensionsv1alpha1.SchemeGroupVersion.WithKind("SandboxWarmPool"): "SandboxSet",
	agentsv1beta1.SchemeGroupVersion.WithKind("Sandbox"):              "Sandbox",
	agentsv1alpha1.SchemeGroupVersion.WithKind("Sandbox"):             "Sandbox",
}

// What agent-sandbox can say is not lost on the way to what is stored and back, of objects
// nor of lists.
func TestNothingIsLostOnTheWayToTheHub(t *testing.T) {
	scheme := install(t)
	fill := filler(scheme)
	for gvk, kind := range converted {
		for _, suffix := range []string{"", "List"} {
			t.Run(gvk.Version+" "+gvk.Kind+suffix, func(t *testing.T) {
				for range rounds {
					object := newOf(t, scheme, gvk.GroupVersion().WithKind(gvk.Kind+suffix))
					fill.Fill(object)
					there, back := newOf(t, scheme, v1alpha1.SchemeGroupVersion.WithKind(kind+suffix)), newOf(t, scheme, gvk.GroupVersion().WithKind(gvk.Kind+suffix))
					before := object.DeepCopyObject()
					if err := scheme.Convert(object, there, nil); err != nil {
						t.Fatal(err)
					}
					inHub := there.DeepCopyObject()
					if err := scheme.Convert(there, back, nil); err != nil {
						t.Fatal(err)
					}
					clearKind(object, back, before)
					if diff := cmp.Diff(before, back); diff != "" {
						t.Fatalf("lost on the way (-was +is):\n%s", diff)
					}
					if !reflect.DeepEqual(before, object) || !reflect.DeepEqual(inHub, there) {
						t.Fatal("a conversion changed what it converted")
					}
				}
			})
		}
	}
}

// A request is decoded, stored, read and answered by codecs: what is stored is in the words
// of agents.kruise.io, and the answer says what the request said.
func TestRequestsAreStoredInTheHubsWords(t *testing.T) {
	scheme := install(t)
	codecs := serializer.NewCodecFactory(scheme)
	storage := codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)
	fill := filler(scheme)
	for gvk, kind := range converted {
		t.Run(gvk.Version+" "+gvk.Kind, func(t *testing.T) {
			for range rounds {
				object := newOf(t, scheme, gvk)
				fill.Fill(object)
				sayAll(object)
				request := encode(t, codecs.LegacyCodec(gvk.GroupVersion()), object)

				hub := newOf(t, scheme, v1alpha1.SchemeGroupVersion.WithKind(kind))
				into, _, err := codecs.UniversalDecoder(internal(gvk.Group)).Decode(request, &gvk, hub)
				if err != nil {
					t.Fatal(err)
				}
				data := encode(t, storage, into)
				read, was, err := storage.Decode(data, nil, newOf(t, scheme, v1alpha1.SchemeGroupVersion.WithKind(kind)))
				if want := v1alpha1.SchemeGroupVersion.WithKind(kind); err != nil || *was != want {
					t.Fatalf("stored is %v, %v; want %v", was, err, want)
				}
				if answer := encode(t, codecs.LegacyCodec(gvk.GroupVersion()), read); !bytes.Equal(answer, request) {
					t.Fatalf("answered (-request +answer):\n%s", cmp.Diff(string(request), string(answer)))
				}
			}
		})
	}
}

// Objects are stored to the byte as by a server without agent-sandbox, which the other way
// round reads what this one stores.
func TestStoredBytesAreThoseOfTheHub(t *testing.T) {
	without, with := runtime.NewScheme(), install(t)
	installHub(without)
	fill := filler(with)
	one := serializer.NewCodecFactory(without).LegacyCodec(v1alpha1.SchemeGroupVersion)
	two := serializer.NewCodecFactory(with).LegacyCodec(v1alpha1.SchemeGroupVersion)
	for kind := range stored {
		for range rounds {
			object := newOf(t, with, v1alpha1.SchemeGroupVersion.WithKind(kind))
			fill.Fill(object)
			want, got := encode(t, one, object), encode(t, two, object)
			if !bytes.Equal(want, got) {
				t.Fatalf("stored (-without +with):\n%s", cmp.Diff(string(want), string(got)))
			}
			a, _, errA := one.Decode(got, nil, nil)
			b, _, errB := two.Decode(got, nil, nil)
			if errA != nil || errB != nil || !reflect.DeepEqual(a, b) {
				t.Fatalf("read %v, %v (-without +with):\n%s", errA, errB, cmp.Diff(a, b))
			}
		}
	}
}

// Only the API server knows the stored types under the names of agent-sandbox: clients of
// these groups have one version of each type.
func TestClientsOfAgentSandboxHaveOneVersion(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, extensionsv1beta1.AddToScheme, extensionsv1alpha1.AddToScheme, agentsv1beta1.AddToScheme, agentsv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range []runtime.Object{
		&v1alpha1.SandboxClaim{}, &extensionsv1beta1.SandboxClaim{}, &extensionsv1alpha1.SandboxClaim{}, &agentsv1beta1.Sandbox{}, &agentsv1alpha1.Sandbox{},
	} {
		if gvks, _, err := scheme.ObjectKinds(object); err != nil || len(gvks) != 1 {
			t.Errorf("%T is %v, %v; want one version", object, gvks, err)
		}
	}
}

// sayAll says what the server would say itself after it was stored.
func sayAll(object runtime.Object) {
	if claim, ok := object.(*extensionsv1beta1.SandboxClaim); ok && claim.Spec.SandboxTemplateRef != nil && claim.Spec.WarmPool == "" {
		claim.Spec.WarmPool = extensionsv1beta1.WarmPoolDefault
	}
}

func newOf(t *testing.T, scheme *runtime.Scheme, gvk schema.GroupVersionKind) runtime.Object {
	t.Helper()
	object, err := scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func encode(t *testing.T, encoder runtime.Encoder, object runtime.Object) []byte {
	t.Helper()
	data, err := runtime.Encode(encoder, object)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// clearKind clears what says the kinds of objects, and of the items of lists, which no
// conversion keeps.
func clearKind(objects ...runtime.Object) {
	for _, object := range objects {
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		_ = meta.EachListItem(object, func(item runtime.Object) error { // an error without items
			item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			return nil
		})
	}
}
