// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// apply applies labels and a spec of an object in a view, as far as they are not empty.
func (w *words) apply(t *testing.T, v *view, manager, name, labels, spec string) (int, []byte) {
	t.Helper()
	if labels != "" {
		labels = `,"labels":` + labels
	}
	if spec != "" {
		spec = `,"spec":` + spec
	}
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q%s}%s}`, v.gv, v.main.Kind, name, labels, spec)
	return w.do(t, http.MethodPatch, v.path(name, "")+"?fieldManager="+manager, string(types.ApplyYAMLPatchType), body)
}

// owned is the entry of the manager "owner", which applies; empty if there is none.
func owned(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == "owner" && entry.Operation == metav1.ManagedFieldsOperationApply {
			return marshal(t, entry)
		}
	}
	return ""
}

// TestWritesKeepManagersOfOtherVersions: a write in one group and version does not change which manager owns
// which fields in another.
func TestWritesKeepManagersOfOtherVersions(t *testing.T) {
	t.Parallel()
	w, all := startWithViews(t)
	for i, made := range all {
		t.Run(made.String(), func(t *testing.T) {
			name := fmt.Sprint("owned-", i)
			views := w.create(t, made, all, name)
			for _, owner := range views {
				for n, other := range views {
					w.checkManager(t, owner, other, name, n)
				}
			}
			for _, v := range views {
				w.checkReset(t, v, views, name)
			}
		})
	}
}

// checkManager lets a manager apply a label in a view, and then writes in another.
func (w *words) checkManager(t *testing.T, owner, other *view, name string, n int) {
	t.Helper()
	what := fmt.Sprintf("applied in %s, written in %s", owner, other)
	apply := func(v *view, manager, labels string) (int, []byte) { return w.apply(t, v, manager, name, labels, "") }
	if code, answer := apply(owner, "owner", `{"owned":"a"}`); code != http.StatusOK {
		t.Fatalf("%s: %d %s", what, code, answer)
	}
	before := owned(t, w.get(t, owner.path(name, "")))
	path := other.path(name, "")
	writes := append(w.writesOf(t, path, "other", nil),
		write{"label", http.MethodPatch, string(types.MergePatchType), fmt.Sprintf(`{"metadata":{"labels":{"other":"%d"}}}`, n), "other"})
	for _, is := range writes {
		if code, answer := w.do(t, is.method, path+"?fieldManager="+is.manager, is.contentType, is.body); code != http.StatusOK {
			t.Errorf("%s: %s: %d %s", what, is.name, code, answer)
		}
	}
	if code, answer := apply(other, "shares", `{"shared":"b"}`); code != http.StatusOK {
		t.Errorf("%s: another manager applies: %d %s", what, code, answer)
	}
	if after := owned(t, w.get(t, owner.path(name, ""))); before == "" || before != after {
		t.Errorf("%s: the manager owned\n%s\nand owns\n%s", what, before, after)
	}
	if code, answer := apply(other, "thief", `{"owned":"b"}`); code != http.StatusConflict || !strings.Contains(string(answer), `"owner\"`) {
		t.Errorf("%s: another manager takes the label: %d %s", what, code, answer)
	}
	if code, answer := apply(owner, "owner", ""); code != http.StatusOK {
		t.Errorf("%s: %d %s", what, code, answer)
	}
	if _, has := w.get(t, path).GetLabels()["owned"]; has {
		t.Errorf("%s: a label stays that is not applied any more", what)
	}
}

// checkReset lets a client take away what all managers own, by an update and a patch.
func (w *words) checkReset(t *testing.T, v *view, views []*view, name string) {
	t.Helper()
	path := v.path(name, "")
	for how, reset := range map[string]func(){
		"update": func() {
			object := w.get(t, path)
			object.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
			w.must(t, http.MethodPut, path, contentJSON, marshal(t, object))
		},
		"JSON patch": func() {
			w.must(t, http.MethodPatch, path, string(types.JSONPatchType), `[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`)
		},
		"merge patch": func() {
			w.must(t, http.MethodPatch, path, string(types.MergePatchType), `{"metadata":{"managedFields":[{}]}}`)
		},
	} {
		for _, each := range views {
			if code, answer := w.apply(t, each, "owner-of-"+strings.ReplaceAll(each.gv.String(), "/", "-"), name, `{"owned":"a"}`, ""); code != http.StatusOK {
				t.Fatalf("applying in %s: %d %s", each, code, answer)
			}
		}
		reset()
		if left := w.get(t, path).GetManagedFields(); len(left) > 0 {
			t.Errorf("%s in %s leaves %+v", how, v, left)
		}
	}
}

// alone are, by kind, specs with fields that another group does not have, and one of these fields,
// which is optional.
var alone = map[string]struct{ spec, field string }{
	"SandboxClaim":    {`{"templateName":"stock","replicas":1,"pauseTime":"2035-01-01T00:00:00Z"}`, "pauseTime"},
	"Sandbox":         {`{"templateRef":{"name":"base"},"pauseTime":"2035-01-01T00:00:00Z"}`, "pauseTime"},
	"SandboxSet":      {`{"updateStrategy":{"maxUnavailable":1},"replicas":1,"template":` + pod + `,"revisionHistoryLimit":3}`, "revisionHistoryLimit"},
	"SandboxTemplate": {`{"template":` + pod + `,"maxFreshSandboxes":3}`, "maxFreshSandboxes"},
}

// TestManagersOfWhatOthersCannotSay: a write in a group that has no words for what a manager owns
// leaves that alone, and the manager can still take it away.
func TestManagersOfWhatOthersCannotSay(t *testing.T) {
	t.Parallel()
	w, all := startWithViews(t)
	for _, own := range all {
		if own.gv != v1alpha1.SchemeGroupVersion {
			continue
		}
		t.Run(own.main.Kind, func(t *testing.T) {
			is, ok := alone[own.main.Kind]
			if !ok {
				t.Fatal("there is no spec for it")
			}
			name := "alone-" + own.main.SingularName
			apply := func(spec string) {
				t.Helper()
				if code, answer := w.apply(t, own, "owner", name, "", spec); code != http.StatusOK && code != http.StatusCreated {
					t.Fatalf("%d %s", code, answer)
				}
			}
			apply(is.spec)
			created := w.get(t, own.path(name, ""))
			var seen int
			for _, other := range all {
				if code, _ := w.do(t, http.MethodGet, other.path(name, ""), contentJSON, ""); code != http.StatusOK || other == own {
					continue
				}
				seen++
				w.checkAlone(t, other, own, name, owned(t, created))
			}
			if seen == 0 {
				t.Fatal("it is seen in no other group")
			}
			spec := map[string]any{}
			decodeJSON(t, is.spec, &spec)
			delete(spec, is.field)
			apply(marshal(t, spec))
			if now := at(t, w.get(t, own.path(name, "")), "spec", is.field); now != nil && cmp.Equal(now, at(t, created, "spec", is.field)) {
				t.Errorf("%s is still %v, which nobody applies any more", is.field, now)
			}
		})
	}
}

// checkAlone writes in a view what leaves alone what a manager owns in another.
func (w *words) checkAlone(t *testing.T, v, own *view, name, want string) {
	t.Helper()
	path := v.path(name, "")
	labelled := w.get(t, path)
	labelled.SetManagedFields(nil)
	labelled.SetLabels(map[string]string{"put": v.gv.Version})
	if code, answer := w.do(t, http.MethodPut, path+"?fieldManager=other", contentJSON, marshal(t, labelled)); code != http.StatusOK {
		t.Errorf("update of %s: %d %s", path, code, answer)
	}
	for _, is := range w.writesOf(t, path, "other", nil) {
		if code, answer := w.do(t, is.method, path+"?fieldManager=other", is.contentType, is.body); code != http.StatusOK {
			t.Errorf("%s of %s: %d %s", is.name, path, code, answer)
		}
		if now := owned(t, w.get(t, own.path(name, ""))); want == "" || now != want {
			t.Errorf("%s of %s: the manager owned\n%s\nand owns\n%s", is.name, path, want, now)
		}
	}
	for _, labels := range []string{`{"theirs":"a"}`, `{"theirs":"b"}`, ""} {
		if code, answer := w.apply(t, v, "theirs", name, labels, ""); code != http.StatusOK {
			t.Errorf("applying in %s: %d %s", v, code, answer)
		}
		object := w.get(t, own.path(name, ""))
		if now := owned(t, object); now != want {
			t.Errorf("applying in %s: the manager owned\n%s\nand owns\n%s", v, want, now)
		}
		for _, entry := range object.GetManagedFields() {
			if entry.Manager == "before-first-apply" {
				t.Errorf("applying in %s makes up %+v", v, entry)
			}
		}
	}
}
