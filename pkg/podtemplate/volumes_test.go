// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// volumeOf is a volume claim template of a name and a size.
func volumeOf(name, size string) runtime.RawExtension {
	return *rawOf(fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"resources":{"requests":{"storage":%q}}}}`, name, size))
}

// withVolumes is a world in which "outer" refers to "inner", whose pod template has a volume
// "data" that its volume claim template is to replace.
func withVolumes() *world {
	w := newWorld()
	w.templates["inner"] = w.templates["inline"].DeepCopy()
	w.templates["inner"].Name = "inner"
	inner := &w.templates["inner"].Spec
	inner.Template = rawOf(`{"spec":{"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"data","mountPath":"/data"}]}],
		"volumes":[{"name":"data","emptyDir":{}},{"name":"other","emptyDir":{}}]}}`)
	inner.VolumeClaimTemplates = []runtime.RawExtension{volumeOf("data", "1Gi"), volumeOf("cache", "1Gi")}
	w.templates["outer"] = w.templates["a"].DeepCopy()
	w.templates["outer"].Name, w.templates["outer"].Spec.TemplateRef = "outer", to("inner")
	w.templates["outer"].Spec.VolumeClaimTemplates = []runtime.RawExtension{volumeOf("cache", "2Gi")}
	return w
}

// volumesOfPod are the volumes of the pod of a sandbox, and the sizes of its volume claims.
func volumesOfPod(t *testing.T, sandbox *v1alpha1.Sandbox) (volumes, sizes map[string]string) {
	t.Helper()
	sandbox.Namespace, sandbox.Name = "ns", "box"
	pod, err := podtemplate.Pod(sandbox, "rev")
	if err != nil {
		t.Fatal(err)
	}
	var typed corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod.Object, &typed); err != nil {
		t.Fatal(err)
	}
	volumes, sizes = map[string]string{}, map[string]string{}
	for _, volume := range typed.Spec.Volumes {
		if volumes[volume.Name] != "" {
			t.Errorf("two volumes %s", volume.Name)
		}
		volumes[volume.Name] = "no claim"
		if volume.PersistentVolumeClaim != nil {
			volumes[volume.Name] = volume.PersistentVolumeClaim.ClaimName
		}
	}
	claims, err := podtemplate.VolumeClaims(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims {
		size, _, _ := unstructured.NestedString(claim.Object, "spec", "resources", "requests", "storage")
		sizes[claim.GetName()] = size
	}
	return volumes, sizes
}

// TestVolumesOfTemplates: however a sandbox is made of a template, it has the volumes of the
// template and of those that this refers to. Of volumes of one name the nearer counts, and
// each takes the place of a volume of its name in the pod template.
func TestVolumesOfTemplates(t *testing.T) {
	w, cache := withVolumes(), podtemplate.NewCache()
	newSet := func() (*v1alpha1.SandboxSet, *podtemplate.Resolved, string) {
		set := setOf("", func(s *v1alpha1.SandboxSet) {
			s.Spec.TemplateRef = to("outer")
			s.Spec.VolumeClaimTemplates = []runtime.RawExtension{volumeOf("own", "3Gi")}
		})
		resolved, err := cache.ResolveSet(t.Context(), set, w)
		if err != nil {
			t.Fatal(err)
		}
		revision, err := podtemplate.SetRevision(set, resolved)
		if err != nil {
			t.Fatal(err)
		}
		return set, resolved, revision
	}
	own := map[string]string{"own-box": "3Gi"}
	for name, tc := range map[string]struct {
		make func() (*v1alpha1.Sandbox, error)
		own  map[string]string
	}{
		"a member of a pool": {own: own, make: func() (*v1alpha1.Sandbox, error) {
			set, resolved, revision := newSet()
			w.templates[podtemplate.RevisionName(set, revision)] = podtemplate.NewHolder(set, revision, resolved)
			return podtemplate.NewSandbox(set, revision, resolved)
		}},
		"one of the revision that is held": {own: own, make: func() (*v1alpha1.Sandbox, error) {
			set, resolved, revision := newSet()
			held := podtemplate.NewHolder(set, revision, resolved)
			if !podtemplate.HoldsRevision(held, revision) {
				t.Error("the SandboxTemplate does not hold the revision")
			}
			then, resolved := podtemplate.AtRevision(set, held)
			return podtemplate.NewSandboxForClaim(then, resolved)
		}},
		"one that a set makes for a claim": {own: own, make: func() (*v1alpha1.Sandbox, error) {
			set, resolved, _ := newSet()
			return podtemplate.NewSandboxForClaim(set, resolved)
		}},
		"one straight from the template": {make: func() (*v1alpha1.Sandbox, error) {
			resolved, err := podtemplate.ResolveTemplate(t.Context(), w.templates["outer"], w)
			if err != nil {
				return nil, err
			}
			return podtemplate.NewSandboxFromTemplate(w.templates["outer"], resolved)
		}},
		"a sandbox of a user": {own: own, make: func() (*v1alpha1.Sandbox, error) {
			sandbox := &v1alpha1.Sandbox{}
			sandbox.Spec.TemplateRef, sandbox.Spec.VolumeClaimTemplates = to("outer"), []runtime.RawExtension{volumeOf("own", "3Gi")}
			return sandbox, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sandbox, err := tc.make()
			if err != nil {
				t.Fatal(err)
			}
			sandbox.Namespace = "ns"
			if sandbox.Spec.Template == nil {
				resolved, err := cache.ResolveSandbox(t.Context(), sandbox, w)
				if err != nil {
					t.Fatal(err)
				}
				sandbox.Spec.Template = resolved.Template
				sandbox.Spec.VolumeClaimTemplates = resolved.WithVolumes(sandbox.Spec.VolumeClaimTemplates)
			}
			volumes, sizes := volumesOfPod(t, sandbox)
			wantVolumes := map[string]string{"data": "data-box", "cache": "cache-box", "other": "no claim"}
			wantSizes := map[string]string{"data-box": "1Gi", "cache-box": "2Gi"}
			for claim, size := range tc.own {
				wantVolumes[strings.TrimSuffix(claim, "-box")], wantSizes[claim] = claim, size
			}
			if diff := cmp.Diff(wantVolumes, volumes); diff != "" {
				t.Errorf("volumes of the pod (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantSizes, sizes); diff != "" {
				t.Errorf("volume claims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVolumesDecideTheRevision: members are replaced when the volumes of their template
// change, and not because a set repeats what its template says.
func TestVolumesDecideTheRevision(t *testing.T) {
	w := withVolumes()
	revision := func(change func(*v1alpha1.SandboxSet)) (string, [32]byte) {
		t.Helper()
		set := setOf("", func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = to("inner") }, change)
		resolved, err := podtemplate.ResolveSet(t.Context(), set, w)
		if err != nil {
			t.Fatal(err)
		}
		is, err := podtemplate.SetRevision(set, resolved)
		if err != nil {
			t.Fatal(err)
		}
		return is, resolved.VolumeClaimsHash()
	}
	plainly := func(*v1alpha1.SandboxSet) {}
	before, sumBefore := revision(plainly)
	repeated, _ := revision(func(s *v1alpha1.SandboxSet) {
		s.Spec.VolumeClaimTemplates = w.templates["inner"].Spec.VolumeClaimTemplates
	})
	if before != repeated {
		t.Error("a set that repeats the volumes of its template has another revision")
	}
	w.templates["inner"].Spec.VolumeClaimTemplates = []runtime.RawExtension{volumeOf("data", "2Gi"), volumeOf("cache", "1Gi")}
	if after, sum := revision(plainly); after == before || sum == sumBefore {
		t.Error("another volume is the same revision")
	}
}

// TestWithTextOfVolumes: a set keeps its revision when the template that it refers to is only
// written otherwise, also if the template brings volumes.
func TestWithTextOfVolumes(t *testing.T) {
	w, cache := withVolumes(), podtemplate.NewCache()
	set := setOf("", func(s *v1alpha1.SandboxSet) {
		s.Spec.TemplateRef = to("outer")
		s.Spec.VolumeClaimTemplates = []runtime.RawExtension{volumeOf("own", "3Gi")}
	})
	resolve := func() (*podtemplate.Resolved, string) {
		t.Helper()
		resolved, err := podtemplate.ResolveSet(t.Context(), set, w)
		if err != nil {
			t.Fatal(err)
		}
		revision, err := podtemplate.SetRevision(set, resolved)
		if err != nil {
			t.Fatal(err)
		}
		return resolved, revision
	}
	resolved, before := resolve()
	held := podtemplate.NewHolder(set, before, resolved)
	inner := &w.templates["inner"].Spec
	template, err := v1alpha1.PodTemplate(inner.Template)
	if err != nil {
		t.Fatal(err)
	}
	if inner.Template, err = v1alpha1.RawTemplate(*template); err != nil {
		t.Fatal(err)
	}
	resolved, after := resolve()
	if after == before {
		t.Fatal("the text is the same")
	}
	then, found, same := cache.WithTextOf(set, after, resolved, held)
	if !same {
		t.Fatal("what decodes to the same is another revision")
	}
	if is, err := podtemplate.SetRevision(then, found); err != nil || is != before {
		t.Errorf("in the text that is held it has revision %s, want %s: %v", is, before, err)
	}
	inner.VolumeClaimTemplates[0] = volumeOf("data", "2Gi")
	resolved, after = resolve()
	if _, _, same := cache.WithTextOf(set, after, resolved, held); same {
		t.Error("another volume is the same revision")
	}
}

// TestCheckService: sandboxes are called like their set, and their Services like them.
func TestCheckService(t *testing.T) {
	long := strings.Repeat("a", 63)
	for name, good := range map[string]bool{"python": true, "3d": true, long: true, "py3.12": false} {
		if err := (&podtemplate.Resolved{Service: new(true)}).CheckService(name); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
		for _, without := range []*bool{nil, new(false)} {
			if err := (&podtemplate.Resolved{Service: without}).CheckService(name); err != nil {
				t.Errorf("%s without a Service: %v", name, err)
			}
		}
	}
}

// TestTooManyVolumesOfTemplates: the templates of a chain have no more volumes together than
// one of them may have.
func TestTooManyVolumesOfTemplates(t *testing.T) {
	w := withVolumes()
	w.templates["outer"].Spec.VolumeClaimTemplates = nil
	for i := range 63 {
		w.templates["outer"].Spec.VolumeClaimTemplates = append(w.templates["outer"].Spec.VolumeClaimTemplates, volumeOf(fmt.Sprintf("v%d", i), "1Gi"))
	}
	resolve := func() error {
		_, err := podtemplate.ResolveTemplate(t.Context(), w.templates["outer"], w)
		return err
	}
	if err := resolve(); !errors.Is(err, podtemplate.ErrVolumes) {
		t.Errorf("65 volumes: %v", err)
	}
	w.templates["outer"].Spec.VolumeClaimTemplates = w.templates["outer"].Spec.VolumeClaimTemplates[:62]
	if err := resolve(); err != nil {
		t.Errorf("64 volumes: %v", err)
	}
	w.templates["outer"].Spec.VolumeClaimTemplates = []runtime.RawExtension{volumeOf(strings.Repeat("n", 256<<10), "1Gi")}
	if err := resolve(); !errors.Is(err, podtemplate.ErrVolumes) {
		t.Errorf("more than 256 KiB: %v", err)
	}
}
