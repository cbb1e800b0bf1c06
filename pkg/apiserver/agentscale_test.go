// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

const (
	oldSandboxes = "/apis/agents.x-k8s.io/v1alpha1/namespaces/default/sandboxes"
	newSandboxes = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
)

// testSandboxScale: in v1alpha1 a sandbox is suspended, and let run again, by its scale.
func testSandboxScale(t *testing.T, w *words) {
	w.must(t, http.MethodPatch, oldSandboxes+"/box?fieldManager=owner", string(types.ApplyYAMLPatchType),
		`{"apiVersion":"agents.x-k8s.io/v1alpha1","kind":"Sandbox","metadata":{"name":"box"},"spec":{"replicas":1,"podTemplate":{"spec":{"containers":[{"name":"main","image":"python"}]}}}}`)
	scalePath := oldSandboxes + "/box/scale"
	scale := w.must(t, http.MethodGet, scalePath, contentJSON, "")
	want := v1alpha1.AgentLabelNameHash + "=" + v1alpha1.NameHash("box")
	if replicas, selector := at(t, scale, "spec", "replicas"), at(t, scale, "status", "selector"); replicas != int64(1) || selector != want || scale.GetAPIVersion() != "autoscaling/v1" {
		t.Errorf("the scale is %v, want one replica and the selector %s", scale.Object, want)
	}
	patch := func(replicas int64) (int, []byte) {
		return w.do(t, http.MethodPatch, scalePath+"?fieldManager=scaler", string(types.MergePatchType), fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	}
	for _, n := range []int64{2, -1} {
		if code, body := patch(n); code != http.StatusUnprocessableEntity || !strings.Contains(string(body), "spec.replicas") {
			t.Errorf("%d replicas: %d %s; want 422 that names the field", n, code, body)
		}
	}
	for _, step := range []struct {
		replicas int64
		mode     string
		paused   bool
	}{{0, "Suspended", true}, {0, "Suspended", true}, {1, "Running", false}} {
		if code, body := patch(step.replicas); code != http.StatusOK {
			t.Fatalf("to %d: %d %s", step.replicas, code, body)
		}
		if got := at(t, w.must(t, http.MethodGet, oldSandboxes+"/box", contentJSON, ""), "spec", "replicas"); got != step.replicas {
			t.Errorf("at %d the sandbox has %v replicas", step.replicas, got)
		}
		box := w.must(t, http.MethodGet, newSandboxes+"/box", contentJSON, "")
		if got := at(t, box, "spec", "operatingMode"); got != step.mode {
			t.Errorf("at %d the operatingMode is %v", step.replicas, got)
		}
		stored := w.must(t, http.MethodGet, "/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxes/box", contentJSON, "")
		if paused, _ := at(t, stored, "spec", "paused").(bool); paused != step.paused {
			t.Errorf("at %d it is paused: %v", step.replicas, paused)
		}
		if at(t, box, "spec", "podTemplate") == nil {
			t.Error("scaling loses the pod template")
		}
	}
	// Who applied the size does not own it any more, and keeps all else.
	for _, entry := range w.must(t, http.MethodGet, oldSandboxes+"/box", contentJSON, "").GetManagedFields() {
		if owned := entry.FieldsV1.GetRawString(); entry.Manager == "owner" && (strings.Contains(owned, "f:replicas") || !strings.Contains(owned, "f:podTemplate")) {
			t.Errorf("who applied the sandbox owns %s", owned)
		}
	}
	for _, path := range []string{newSandboxes + "/box/scale", oldSandboxes + "/absent/scale"} {
		if code, body := w.do(t, http.MethodGet, path, contentJSON, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	w.must(t, http.MethodDelete, oldSandboxes+"/box", contentJSON, "")
}
