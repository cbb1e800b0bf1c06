// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// resource is one that the API serves, as group/version/resource.
type resource string

// resources are all of them. Claims come first.
var resources = []resource{
	"agents.kruise.io/v1alpha1/sandboxclaims",
	"agents.kruise.io/v1alpha1/sandboxes",
	"agents.kruise.io/v1alpha1/sandboxsets",
	"agents.kruise.io/v1alpha1/sandboxtemplates",
	"agents.x-k8s.io/v1alpha1/sandboxes",
	"agents.x-k8s.io/v1beta1/sandboxes",
	"extensions.agents.x-k8s.io/v1alpha1/sandboxclaims",
	"extensions.agents.x-k8s.io/v1alpha1/sandboxtemplates",
	"extensions.agents.x-k8s.io/v1alpha1/sandboxwarmpools",
	"extensions.agents.x-k8s.io/v1beta1/sandboxclaims",
	"extensions.agents.x-k8s.io/v1beta1/sandboxtemplates",
	"extensions.agents.x-k8s.io/v1beta1/sandboxwarmpools",
}

// has reports whether a key of answers is of an object of the resource in a namespace.
func (r resource) has(key, namespace string) bool {
	return strings.HasPrefix(key, string(r)+"/"+namespace+"/")
}

// answers are objects as the API answers them, by resource, namespace and name.
type answers map[string]json.RawMessage

// readAll asks a server for everything.
func readAll(t *testing.T, s *testutil.Server) answers {
	t.Helper()
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	all := answers{}
	for _, r := range resources {
		parts := strings.Split(string(r), "/")
		gvr := v1alpha1.SchemeGroupVersion.WithResource(parts[2])
		gvr.Group, gvr.Version = parts[0], parts[1]
		list, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("listing %s: %v", r, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			content, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			all[strings.Join([]string{string(r), object.GetNamespace(), object.GetName()}, "/")] = content
		}
	}
	return all
}

// readAnswers reads what writeAnswers wrote, by the prefixes of the stores.
func readAnswers(t *testing.T, path string) map[string]answers {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]answers{}
	decode(t, content, &all)
	return all
}

// writeAnswers writes a line for each answer, so that two releases can be compared.
func writeAnswers(t *testing.T, path string, all map[string]answers) {
	t.Helper()
	var stores []string
	for _, prefix := range slices.Sorted(maps.Keys(all)) {
		var lines []string
		for _, key := range slices.Sorted(maps.Keys(all[prefix])) {
			lines = append(lines, fmt.Sprintf("%q: %s", key, all[prefix][key]))
		}
		stores = append(stores, fmt.Sprintf("%q: {\n%s\n}", prefix, strings.Join(lines, ",\n")))
	}
	content := "{\n" + strings.Join(stores, ",\n") + "\n}\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

// comparison says what of the metadata may differ.
type comparison int

const (
	// strict is for a store that is as it was.
	strict comparison = iota
	// rewritten is for one in which objects have other resourceVersions.
	rewritten
)

// compare holds answers to those that are expected:
//
//  1. No object is missing, and none is there beside them.
//  2. Each is equal, except for fields that this version adds with a default: these are
//     filled in on both sides. A field that this version does not know any more is an error.
//  3. A claim that is Claiming, and its sandboxes, may have gone on: their status, their
//     resourceVersion and their annotations are not compared.
func compare(t *testing.T, want, got answers, how comparison) {
	t.Helper()
	decoder := newDecoder()
	unfinished := unfinishedClaims(t, want)
	for key, content := range want {
		if got[key] == nil {
			t.Errorf("%s is missing", key)
			continue
		}
		expected, err := decoder.decode(content)
		if err != nil {
			t.Errorf("%s: this version cannot take what was answered: %v", key, err)
			continue
		}
		object, err := decoder.decode(got[key])
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		moving := isOf(t, expected, unfinished)
		for _, o := range []runtime.Object{expected, object} {
			forget(t, o, how, moving)
		}
		if diff := cmp.Diff(expected, object); diff != "" {
			t.Errorf("%s is another (-expected +answered):\n%s", key, diff)
		}
	}
	for key := range got {
		if want[key] == nil {
			t.Errorf("%s is there, and is not expected", key)
		}
	}
}

// decoder decodes answers into the types of this version, with their defaults, and refuses
// fields that these do not have.
type decoder struct {
	scheme *runtime.Scheme
	strict runtime.Decoder
}

func newDecoder() decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return decoder{scheme, serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()}
}

func (d decoder) decode(content []byte) (runtime.Object, error) {
	object, _, err := d.strict.Decode(content, nil, nil)
	if err != nil {
		return nil, err
	}
	d.scheme.Default(object)
	return object, nil
}

// unfinishedClaims are the UIDs of those that may continue as soon as a server runs.
func unfinishedClaims(t *testing.T, all answers) map[string]bool {
	t.Helper()
	uids := map[string]bool{}
	for key, content := range all {
		if !strings.HasPrefix(key, string(resources[0])+"/") {
			continue
		}
		var claim v1alpha1.SandboxClaim
		decode(t, content, &claim)
		if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
			uids[string(claim.UID)] = true
		}
	}
	return uids
}

// isOf reports whether an object is one of the claims, or a sandbox of one of them.
func isOf(t *testing.T, object runtime.Object, claims map[string]bool) bool {
	t.Helper()
	accessor, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	return claims[string(accessor.GetUID())] || claims[accessor.GetAnnotations()[v1alpha1.AnnotationOwner]]
}

// forget removes what is not compared.
func forget(t *testing.T, object runtime.Object, how comparison, moving bool) {
	t.Helper()
	accessor, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	if how == rewritten || moving {
		accessor.SetResourceVersion("")
	}
	if !moving {
		return
	}
	accessor.SetAnnotations(nil)
	accessor.SetManagedFields(nil)
	// Each kind has a status of its own type.
	status := reflect.ValueOf(object).Elem().FieldByName("Status")
	status.SetZero()
}
