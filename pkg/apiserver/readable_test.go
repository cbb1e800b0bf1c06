// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
)

// TestObjectsStayReadable: no request stores an object that cannot be read again, which would fail
// each list of its kind, in all namespaces.
func TestObjectsStayReadable(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	w.stock(t, 0, 1)
	const (
		kruise     = "/apis/agents.kruise.io/v1alpha1/namespaces/default/"
		extensions = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/"
		late       = "9999-12-31T23:59:59-23:00"
		early      = "0000-01-01T00:00:00+23:00"
		template   = `{"spec":{"containers":[{"name":"a","image":"i"}]}}`
	)
	managed := func(at string) string {
		return `"managedFields":[{"manager":"m","operation":"Update","apiVersion":"agents.kruise.io/v1alpha1","time":"` + at + `","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{}}}]`
	}
	object := func(kind, metadata, rest string) string {
		return `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"` + kind + `","metadata":{"name":"other"` + metadata + `},` + rest + `}`
	}
	deep := `{"spec":{"containers":[{"name":"a","image":"i"}],"x":` + strings.Repeat("[", 9900) + strings.Repeat("]", 9900) + `}}`
	w.must(t, http.MethodPost, kruise+"sandboxclaims", contentJSON, `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"made"},"spec":{"templateName":"warm","createOnNoStock":false,"claimTimeout":"1s"}}`)
	pool, err := w.server.Client.AgentsV1alpha1().Sandboxes("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pool.Items) == 0 {
		t.Fatal(pool, err)
	}
	sandbox := pool.Items[0].Name
	merge, jsonPatch, apply := string(types.MergePatchType), string(types.JSONPatchType), string(types.ApplyYAMLPatchType)
	for name, r := range map[string]struct{ method, path, contentType, body string }{
		"create of a claim":      {http.MethodPost, "sandboxclaims", contentJSON, object("SandboxClaim", ","+managed(late), `"spec":{"templateName":"warm"}`)},
		"dry run":                {http.MethodPost, "sandboxclaims?dryRun=All", contentJSON, object("SandboxClaim", ","+managed(late), `"spec":{"templateName":"warm"}`)},
		"YAML":                   {http.MethodPost, "sandboxclaims", contentYAML, object("SandboxClaim", ","+managed(early), `"spec":{"templateName":"warm"}`)},
		"create of a set":        {http.MethodPost, "sandboxsets", contentJSON, object("SandboxSet", ","+managed(early), `"spec":{"replicas":0,"template":`+template+`}`)},
		"create of a template":   {http.MethodPost, "sandboxtemplates", contentJSON, object("SandboxTemplate", ","+managed(late), `"spec":{"template":`+template+`}`)},
		"create of a sandbox":    {http.MethodPost, "sandboxes", contentJSON, object("Sandbox", ","+managed(late), `"spec":{"template":`+template+`}`)},
		"a time of the spec":     {http.MethodPost, "sandboxclaims", contentJSON, object("SandboxClaim", "", `"spec":{"templateName":"warm","shutdownTime":"`+late+`"}`)},
		"merge patch":            {http.MethodPatch, "sandboxclaims/made", merge, `{"metadata":{` + managed(late) + `}}`},
		"merge patch of spec":    {http.MethodPatch, "sandboxes/SANDBOX", merge, `{"spec":{"pauseTime":"` + late + `"}}`},
		"JSON patch":             {http.MethodPatch, "sandboxsets/warm", jsonPatch, `[{"op":"add","path":"/metadata/managedFields","value":[{"manager":"m","operation":"Update","apiVersion":"agents.kruise.io/v1alpha1","time":"` + late + `","fieldsType":"FieldsV1","fieldsV1":{}}]}]`},
		"apply":                  {http.MethodPatch, "sandboxclaims/other?fieldManager=me", apply, object("SandboxClaim", "", `"spec":{"templateName":"warm","shutdownTime":"`+late+`"}`)},
		"status":                 {http.MethodPatch, "sandboxes/SANDBOX/status", merge, `{"status":{"conditions":[{"type":"A","status":"True","reason":"A","message":"","lastTransitionTime":"` + late + `"}]}}`},
		"scale":                  {http.MethodPatch, "sandboxsets/warm/scale", merge, `{"metadata":{"creationTimestamp":"` + late + `"}}`},
		"of agent-sandbox":       {http.MethodPatch, extensions + "sandboxclaims/made", merge, `{"metadata":{` + managed(late) + `}}`},
		"a number":               {http.MethodPost, "sandboxtemplates", contentJSON, object("SandboxTemplate", "", `"spec":{"template":{"spec":{"containers":[{"name":"a","image":"i"}],"x":1e400}}}`)},
		"a number, by a patch":   {http.MethodPatch, "sandboxsets/warm", merge, `{"spec":{"template":{"spec":{"x":1e400}}}}`},
		"a number, by apply":     {http.MethodPatch, "sandboxtemplates/other?fieldManager=me", apply, object("SandboxTemplate", "", `"spec":{"template":{"spec":{"x":1e400}}}`)},
		"resourceVersion, apply": {http.MethodPatch, "sandboxclaims/other?fieldManager=me", apply, object("SandboxClaim", `,"resourceVersion":"null"`, `"spec":{"templateName":"warm"}`)},
		"nested":                 {http.MethodPost, "sandboxtemplates", contentJSON, object("SandboxTemplate", "", `"spec":{"template":`+deep+`}`)},
		"nested, by a patch":     {http.MethodPatch, "sandboxsets/warm", merge, `{"spec":{"template":` + deep + `}}`},
		"nested, by a JSONPatch": {http.MethodPatch, "sandboxsets/warm", jsonPatch, `[{"op":"replace","path":"/spec/template","value":` + deep + `}]`},
		"nested, by apply":       {http.MethodPatch, "sandboxtemplates/other?fieldManager=me&force=true", apply, object("SandboxTemplate", "", `"spec":{"template":`+deep+`}`)},
		"nested, in YAML":        {http.MethodPost, "sandboxtemplates", contentYAML, object("SandboxTemplate", "", `"spec":{"template":`+deep+`}`)},
	} {
		t.Run(name, func(t *testing.T) {
			path := strings.Replace(r.path, "SANDBOX", sandbox, 1)
			if !strings.HasPrefix(path, "/") {
				path = kruise + path
			}
			code, answer := w.do(t, r.method, path, r.contentType, r.body)
			if code != http.StatusBadRequest && code != http.StatusUnprocessableEntity {
				t.Errorf("%d %.300s", code, answer)
			}
			for _, resource := range []string{"sandboxclaims", "sandboxsets", "sandboxtemplates", "sandboxes"} {
				if code, answer := w.do(t, http.MethodGet, kruise+resource, contentJSON, ""); code != http.StatusOK {
					t.Fatalf("then %s are %d %.300s", resource, code, answer)
				}
			}
		})
	}
}

// TestStorageCodec: what gets past the checks of requests, such as what a webhook changes, is not
// stored either.
func TestStorageCodec(t *testing.T) {
	claim := &v1alpha1.SandboxClaim{}
	claim.Spec.ShutdownTime = &metav1.Time{Time: time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -23*60*60))}
	if data, err := runtime.Encode(apiserver.NewStorageCodec(), claim); !apierrors.IsBadRequest(err) {
		t.Errorf("%s, %v", data, err)
	}
}
