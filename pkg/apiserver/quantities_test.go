// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestQuantitiesWithLargeExponents: no request stores, or has the server decode, a quantity that
// takes minutes to compare, by whatever verb and format.
func TestQuantitiesWithLargeExponents(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	w.stock(t, 0, 1)
	const (
		sets   = "/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxsets"
		claims = "/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxclaims"
		limits = `{"inplaceUpdate":{"resources":{"limits":{"cpu":"1e9999999"}}}}`
		full   = `"templateName":"warm","inplaceUpdate":{"resources":{"limits":{"cpu":"1e-9999999"}}}`
		claim  = `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"made"},"spec":{` + full + `}}`
		pods   = `{"spec":{"containers":[{"name":"a","image":"i","resources":{"limits":{"memory":"1e9999999"}}}]}}`
	)
	w.must(t, http.MethodPost, claims, contentJSON, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"made"},"spec":{"templateName":"warm"}}`)
	for name, r := range map[string]struct{ method, path, contentType, body string }{
		"create":            {http.MethodPost, claims, contentJSON, strings.Replace(claim, "made", "other", 1)},
		"dry run":           {http.MethodPost, claims + "?dryRun=All", contentJSON, strings.Replace(claim, "made", "other", 1)},
		"YAML":              {http.MethodPost, claims, "application/yaml", strings.Replace(claim, "made", "other", 1)},
		"update":            {http.MethodPut, claims + "/made", contentJSON, claim},
		"status":            {http.MethodPut, claims + "/made/status", contentJSON, claim},
		"merge patch":       {http.MethodPatch, claims + "/made", string(types.MergePatchType), `{"spec":` + limits + `}`},
		"JSON patch":        {http.MethodPatch, claims + "/made", string(types.JSONPatchType), `[{"op":"add","path":"/spec/inplaceUpdate","value":{"resources":{"limits":{"cpu":"1e9999999"}}}}]`},
		"apply":             {http.MethodPatch, claims + "/made?fieldManager=me", string(types.ApplyYAMLPatchType), claim},
		"apply of a new":    {http.MethodPatch, claims + "/other?fieldManager=me", string(types.ApplyYAMLPatchType), strings.Replace(claim, "made", "other", 1)},
		"a set":             {http.MethodPost, sets, contentJSON, `{"metadata":{"name":"other"},"spec":{"replicas":0,"template":` + pods + `}}`},
		"a template":        {http.MethodPost, agentTemplates, contentJSON, object("SandboxTemplate", "other", `{"podTemplate":`+pods+`}`)},
		"patch of template": {http.MethodPatch, agentTemplates + "/python", string(types.MergePatchType), `{"spec":{"podTemplate":` + pods + `}}`},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer := w.do(t, r.method, r.path, r.contentType, r.body)
			want := http.StatusBadRequest
			if r.contentType == string(types.JSONPatchType) {
				want = http.StatusUnprocessableEntity // as for the kinds of Kubernetes
			}
			if code != want || !bytes.Contains(answer, []byte("must have an exponent of at most two digits")) {
				t.Errorf("%d %s", code, answer)
			}
		})
	}
}
