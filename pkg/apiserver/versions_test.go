// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// unknownField is in the pod templates of samples; an apply to agent-sandbox refuses it.
const unknownField = `,"fromTheFuture":{"a":[1]}`

// TestWritesWithoutVersion: of every kind, and of its status, a PUT without a resourceVersion is
// 422, as of custom resources. Scales are written without one, as those of Kubernetes are. An apply
// that makes an object ignores the resourceVersion, as for the kinds of Kubernetes: it is that of
// an object that is there no more.
func TestWritesWithoutVersion(t *testing.T) {
	t.Parallel()
	w, all := startWithViews(t)
	for i, v := range all {
		name := fmt.Sprint("version-", i)
		w.create(t, v, all, name)
		for _, subresource := range append([]string{""}, v.subresources...) {
			path := v.path(name, subresource)
			object := w.get(t, path)
			object.SetResourceVersion("")
			code, answer := w.do(t, http.MethodPut, path, contentJSON, marshal(t, object))
			switch text := string(answer); {
			case subresource == "scale" && code != http.StatusOK:
				t.Errorf("PUT of %s: %d %.300s", path, code, answer)
			case subresource != "scale" && (code != http.StatusUnprocessableEntity || !strings.Contains(text, "metadata.resourceVersion: Invalid value")):
				t.Errorf("PUT of %s: %d %.300s", path, code, answer)
			}
		}
		fresh := v.path(name+"-fresh", "")
		body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"resourceVersion":"1"},"spec":%s}`,
			v.gv, v.main.Kind, name+"-fresh", samples[v.String()])
		made := w.must(t, http.MethodPatch, fresh+"?fieldManager=a", string(types.ApplyYAMLPatchType), strings.ReplaceAll(body, unknownField, ""))
		if version := made.GetResourceVersion(); version == "1" || version == "" || made.GetUID() == "" {
			t.Errorf("apply of %s makes version %q", fresh, version)
		}
		body = strings.Replace(body, `"resourceVersion"`, `"uid":"5b8a6d44-0c0e-4f6b-9d0a-5b2f3c1d7e90","resourceVersion"`, 1)
		fresh, body = fresh+"-uid", strings.ReplaceAll(body, name+"-fresh", name+"-fresh-uid")
		if code, answer := w.do(t, http.MethodPatch, fresh+"?fieldManager=a", string(types.ApplyYAMLPatchType), strings.ReplaceAll(body, unknownField, "")); code != http.StatusConflict {
			t.Errorf("apply of %s with a UID: %d %.300s", fresh, code, answer)
		}
	}
}
