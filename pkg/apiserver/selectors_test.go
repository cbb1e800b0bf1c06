// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestLongSelectors: a request with a long selector is refused before anything parses it, for all
// users.
func TestLongSelectors(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	const (
		kruise = "/apis/agents.kruise.io/v1alpha1/"
		all    = kruise + "namespaces/default/sandboxclaims?"
	)
	long := strings.Repeat("!a,", 2800) + "!a"
	for name, tc := range map[string]struct {
		method, path, selectors string
		want                    int
	}{
		"list":                      {http.MethodGet, all, "labelSelector=" + long, http.StatusBadRequest},
		"list of all namespaces":    {http.MethodGet, kruise + "sandboxes?", "labelSelector=" + long, http.StatusBadRequest},
		"list of another group":     {http.MethodGet, "/apis/agents.x-k8s.io/v1beta1/sandboxes?", "labelSelector=" + long, http.StatusBadRequest},
		"list by fields":            {http.MethodGet, all, "fieldSelector=metadata.name!%3D" + strings.Repeat("x", 8<<10), http.StatusBadRequest},
		"list by both":              {http.MethodGet, all, "labelSelector=" + long[:4<<10] + "a&fieldSelector=metadata.name!%3D" + strings.Repeat("x", 4<<10), http.StatusBadRequest},
		"watch":                     {http.MethodGet, all, "watch=true&timeoutSeconds=1&labelSelector=" + long, http.StatusBadRequest},
		"watch by its path":         {http.MethodGet, kruise + "watch/namespaces/default/sandboxclaims?", "timeoutSeconds=1&labelSelector=" + long, http.StatusBadRequest},
		"deletecollection":          {http.MethodDelete, all, "labelSelector=" + long, http.StatusBadRequest},
		"a second one":              {http.MethodGet, all, "labelSelector=a&labelSelector=" + long, http.StatusBadRequest},
		"escaped, of as many bytes": {http.MethodGet, all, "labelSelector=" + url.QueryEscape("a in ("+strings.Repeat(strings.Repeat("b", 30)+",", 200)+"b)"), http.StatusOK},
		"many values":               {http.MethodGet, all, "labelSelector=" + url.QueryEscape("a in ("+strings.Repeat("b,", 256)+"b)"), http.StatusBadRequest},
		"many requirements":         {http.MethodGet, all, "labelSelector=" + long[:3*256] + "!a", http.StatusBadRequest},
		"many in two selectors":     {http.MethodGet, all, "labelSelector=" + long[:3*128] + "!a&fieldSelector=" + strings.Repeat("metadata.name!%3Dx,", 130) + "metadata.name!%3Dx", http.StatusBadRequest},
		"not too long":              {http.MethodGet, all, "labelSelector=" + long[:3*255] + "!a", http.StatusOK},
		"another parameter":         {http.MethodGet, all, "other=" + long, http.StatusOK},
	} {
		code, answer := w.do(t, tc.method, tc.path+tc.selectors, contentJSON, "")
		if code != tc.want {
			t.Errorf("%s: %d %.200s, want %d", name, code, answer, tc.want)
		}
		var status metav1.Status
		if decodeJSON(t, string(answer), &status); code == http.StatusBadRequest &&
			(status.Reason != metav1.StatusReasonBadRequest || !strings.Contains(status.Message, "may have")) {
			t.Errorf("%s: %.200s", name, answer)
		}
	}
	stranger, err := rest.HTTPClientFor(rest.AnonymousClientConfig(w.server.Config))
	if err != nil {
		t.Fatal(err)
	}
	w.client = stranger
	if code, answer := w.do(t, http.MethodGet, all+"labelSelector="+long, contentJSON, ""); code != http.StatusBadRequest {
		t.Errorf("a stranger: %d %.200s", code, answer)
	}
}
