// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// write is a request that changes nothing.
type write struct {
	name, method, contentType, body string
	manager                         string
}

// TestWritesThatChangeNothing: a write that changes nothing writes nothing, whatever its verb, in
// each group and version, regardless of who owns what in which version. Clients that write what
// they want at each event rely on it to come to rest.
func TestWritesThatChangeNothing(t *testing.T) {
	t.Parallel()
	w, all := startWithViews(t)
	for i, made := range all {
		t.Run(made.String(), func(t *testing.T) {
			name := fmt.Sprint("object-", i)
			views := w.create(t, made, all, name)
			if len(views) < 2 {
				t.Fatalf("it is seen as %v alone", views)
			}
			// Before anyone else has written, and then with managers in all versions.
			for _, v := range views {
				w.checkWrites(t, v, views[0], name, "nobody", nil)
			}
			applied := map[string]string{}
			for n, v := range views {
				w.changeAll(t, v, name, n)
			}
			for n, v := range views {
				w.applyAll(t, v, name, n, applied)
			}
			for n, v := range views {
				w.checkWrites(t, v, views[0], name, fmt.Sprint(n), applied)
			}
		})
	}
}

// changeAll changes an object by each verb of a view, each by a manager of its own.
func (w *words) changeAll(t *testing.T, v *view, name string, n int) {
	t.Helper()
	path := v.path(name, "")
	object := w.get(t, path)
	object.SetAnnotations(map[string]string{fmt.Sprint("put-", n): "x"})
	w.must(t, http.MethodPut, fmt.Sprint(path, "?fieldManager=put-", n), contentJSON, marshal(t, object))
	w.must(t, http.MethodPatch, fmt.Sprint(path, "?fieldManager=merge-", n), string(types.MergePatchType),
		fmt.Sprintf(`{"metadata":{"annotations":{"merge-%d":"x"}}}`, n))
	w.must(t, http.MethodPatch, fmt.Sprint(path, "?fieldManager=json-", n), string(types.JSONPatchType),
		fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations/json-%d","value":"x"}]`, n))
	for _, subresource := range v.subresources {
		body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Tested","status":"True","reason":"By%d","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, n)
		if subresource == "scale" {
			body = `{"spec":{"replicas":1}}`
			if n%2 == 0 {
				body = `{"spec":{"replicas":0}}`
			}
		}
		w.must(t, http.MethodPatch, fmt.Sprint(v.path(name, subresource), "?fieldManager=merge-", n), string(types.MergePatchType), body)
	}
}

// applyAll lets a manager of a view apply all of an object that it sees, and notes what.
func (w *words) applyAll(t *testing.T, v *view, name string, n int, applied map[string]string) {
	t.Helper()
	for _, subresource := range append([]string{""}, v.subresources...) {
		path := v.path(name, subresource)
		object := w.get(t, path)
		body := map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": map[string]any{"name": name}}
		switch subresource {
		case "":
			body["metadata"] = map[string]any{"name": name, "labels": map[string]any{fmt.Sprint("apply-", n): "x"}}
			// An apply names no field that its group does not know.
			unstructured.RemoveNestedField(object.Object, "spec", "podTemplate", "spec", "fromTheFuture")
			body["spec"] = object.Object["spec"]
		case "scale":
			body["spec"] = object.Object["spec"]
		default:
			body[subresource] = object.Object[subresource]
		}
		applied[path] = marshal(t, body)
		w.must(t, http.MethodPatch, fmt.Sprint(path, "?force=true&fieldManager=apply-", n), string(types.ApplyYAMLPatchType), applied[path])
	}
}

// writesOf are requests for a view of an object that change nothing, of all verbs.
func (w *words) writesOf(t *testing.T, path, manager string, applied map[string]string) []write {
	t.Helper()
	is := w.get(t, path)
	without := is.DeepCopy()
	without.SetManagedFields(nil)
	writes := []write{
		{"update", http.MethodPut, contentJSON, marshal(t, is), "put-" + manager},
		{"update by another manager", http.MethodPut, contentJSON, marshal(t, is), "other"},
		{"update without managed fields", http.MethodPut, contentJSON, marshal(t, without), "other"},
		{"merge patch", http.MethodPatch, string(types.MergePatchType), `{}`, "merge-" + manager},
		{"merge patch of the same", http.MethodPatch, string(types.MergePatchType), marshal(t, without), "other"},
		{"JSON patch", http.MethodPatch, string(types.JSONPatchType), `[]`, "json-" + manager},
		{"JSON patch of the same", http.MethodPatch, string(types.JSONPatchType),
			marshal(t, []map[string]any{{"op": "replace", "path": "/spec", "value": is.Object["spec"]}}), "other"},
	}
	if applied[path] != "" {
		writes = append(writes, write{"apply", http.MethodPatch, string(types.ApplyYAMLPatchType), applied[path], "apply-" + manager})
	}
	return writes
}

// checkWrites checks that no write in a view changes the object, which is read in another.
func (w *words) checkWrites(t *testing.T, v, read *view, name, manager string, applied map[string]string) {
	t.Helper()
	for _, subresource := range append([]string{""}, v.subresources...) {
		path := v.path(name, subresource)
		before := w.get(t, read.path(name, ""))
		for _, is := range w.writesOf(t, path, manager, applied) {
			code, answer := w.do(t, is.method, path+"?fieldManager="+is.manager, is.contentType, is.body)
			if code != http.StatusOK {
				t.Errorf("%s of %s: %d %.300s", is.name, path, code, answer)
				continue
			}
			answered := &unstructured.Unstructured{}
			if err := answered.UnmarshalJSON(answer); err != nil {
				t.Fatalf("%s of %s: %v", is.name, path, err)
			}
			if answered.GetResourceVersion() != before.GetResourceVersion() {
				after := w.get(t, read.path(name, ""))
				t.Errorf("%s of %s writes: (-before +after)\n%s", is.name, path, cmp.Diff(before.Object, after.Object))
				before = after
			}
		}
		// Strategic merge patches and CBOR are refused in each group.
		for _, patch := range []types.PatchType{types.StrategicMergePatchType, types.ApplyCBORPatchType} {
			if code, answer := w.do(t, http.MethodPatch, path+"?fieldManager=other", string(patch), `{}`); code != http.StatusUnsupportedMediaType {
				t.Errorf("%s of %s: %d %.300s", patch, path, code, answer)
			}
		}
	}
}
