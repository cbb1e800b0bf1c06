// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var kinds = []string{"SandboxClaim", "SandboxSet", "SandboxTemplate", "Sandbox"}

// Without it the round trip could pass with nothing to go round.
func TestEveryKindIsKnownTwice(t *testing.T) {
	scheme := runtime.NewScheme()
	Install(scheme)
	internal := schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal}

	for _, kind := range kinds {
		for _, name := range []string{kind, kind + "List"} {
			external, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(name))
			if err != nil {
				t.Errorf("%s in v1alpha1: %v", name, err)
				continue
			}
			alias, err := scheme.New(internal.WithKind(name))
			if err != nil {
				t.Errorf("%s in __internal: %v", name, err)
				continue
			}
			if reflect.TypeOf(external) != reflect.TypeOf(alias) {
				t.Errorf("%s is %T in v1alpha1 and %T in __internal", name, external, alias)
			}
		}
	}

	own := map[string]bool{}
	// These are not stored, so there are no lists of them.
	requests := map[string]runtime.Object{
		"SandboxClaimRelease":       &v1alpha1.SandboxClaimRelease{},
		"SandboxClaimRuntimeAccess": &v1alpha1.SandboxClaimRuntimeAccess{},
	}
	for name, want := range requests {
		if got, err := scheme.New(internal.WithKind(name)); err != nil || reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s is %T in __internal, %v", name, got, err)
		}
	}
	for name, goType := range scheme.KnownTypes(v1alpha1.SchemeGroupVersion) {
		if strings.HasSuffix(goType.PkgPath(), "/apis/sandbox/v1alpha1") && !strings.HasSuffix(name, "List") {
			own[name] = true
		}
	}
	if len(own) != len(kinds)+len(requests) {
		t.Errorf("v1alpha1 has kinds %v, tested are %v", own, kinds)
	}
}

func TestVersionPriority(t *testing.T) {
	scheme := runtime.NewScheme()
	Install(scheme)
	got := scheme.PrioritizedVersionsForGroup(v1alpha1.GroupName)
	if want := []schema.GroupVersion{v1alpha1.SchemeGroupVersion}; !reflect.DeepEqual(got, want) {
		t.Errorf("versions %v, want %v", got, want)
	}
}

// Clients and controllers must not get the alias: controller-runtime refuses
// types of two versions.
func TestAddToSchemeHasOneVersion(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	gvks, _, err := scheme.ObjectKinds(&v1alpha1.SandboxClaim{})
	if err != nil || len(gvks) != 1 {
		t.Errorf("SandboxClaim is %v, %v; want one version", gvks, err)
	}
}

func TestFieldLabels(t *testing.T) {
	scheme := runtime.NewScheme()
	Install(scheme)
	tests := map[string]struct {
		kind, label string
		ok          bool
	}{
		"phase of a claim":      {"SandboxClaim", "status.phase", true},
		"phase of a sandbox":    {"Sandbox", "status.phase", true},
		"name of a claim":       {"SandboxClaim", "metadata.name", true},
		"name of a set":         {"SandboxSet", "metadata.name", true},
		"namespace of a claim":  {"SandboxClaim", "metadata.namespace", true},
		"a set has no phase":    {"SandboxSet", "status.phase", false},
		"other field of claims": {"SandboxClaim", "spec.templateName", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			label, value, err := scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind(tc.kind), tc.label, "x")
			if (err == nil) != tc.ok {
				t.Fatalf("error %v, want ok %v", err, tc.ok)
			}
			if tc.ok && (label != tc.label || value != "x") {
				t.Errorf("got %s=%s", label, value)
			}
		})
	}
}
