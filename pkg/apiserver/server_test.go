// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

const (
	groupPath     = "/apis/agents.kruise.io/v1alpha1"
	templatesPath = groupPath + "/namespaces/default/sandboxtemplates"
	setsPath      = groupPath + "/namespaces/default/sandboxsets"
	claimsPath    = groupPath + "/namespaces/default/sandboxclaims"

	contentJSON = "application/json"
	contentYAML = "application/yaml"

	pod = `{"spec":{"containers":[{"name":"main","image":"python"}],"fromTheFuture":{"a":[1]}}}`
)

func TestServer(t *testing.T) {
	c := &conn{server: testutil.Start(t, testutil.WithOpenAPI())}
	var err error
	if c.client, err = rest.HTTPClientFor(c.server.Config); err != nil {
		t.Fatal(err)
	}
	t.Run("bad input names its field", func(t *testing.T) { testBadInput(t, c) })
	t.Run("unknown fields warn", func(t *testing.T) { testUnknownFieldsWarn(t, c) })
	t.Run("strategic merge patch", func(t *testing.T) { testStrategicMergePatch(t, c) })
	t.Run("patches that panic", func(t *testing.T) { testPatchesThatPanic(t, c) })
	t.Run("apply keeps unknown fields", func(t *testing.T) { testApplyKeepsUnknownFields(t, c) })
	t.Run("too large", func(t *testing.T) { testTooLarge(t, c) })
	t.Run("documents", func(t *testing.T) { testDocuments(t, c) })
	t.Run("anonymous", func(t *testing.T) { testAnonymous(t, c) })
	t.Run("own client", func(t *testing.T) { testOwnClient(t, c) })
}

// testOwnClient: the server makes a certificate for the client in its process, at little cost.
func testOwnClient(t *testing.T, c *conn) {
	config := c.server.APIServer.LoopbackClientConfig()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.AgentsV1alpha1().SandboxSets("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	certs, err := cert.ParseCertsPEM(config.CAData)
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range certs {
		if _, ok := made.PublicKey.(*ecdsa.PublicKey); !ok {
			t.Errorf("the certificate has a %T", made.PublicKey)
		}
	}
}

func testBadInput(t *testing.T, c *conn) {
	set := func(maxUnavailable string) string {
		return `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSet","metadata":{"name":"a","namespace":"default"},` +
			`"spec":{"replicas":0,"template":` + pod + `,"scaleStrategy":{"maxUnavailable":` + maxUnavailable + `}}}`
	}
	claim := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"a"},"spec":{"templateName":"a",%s}}`
	if code, body := c.do(t, http.MethodPost, setsPath, contentJSON, set("1")); code != http.StatusCreated {
		t.Fatalf("creating a set: %d %s", code, body)
	}
	cases := map[string]struct {
		method, path, contentType, body string
		want                            string
	}{
		"create":             {http.MethodPost, claimsPath, contentJSON, fmt.Sprintf(claim, `"claimTimeout":"abc"`), `spec.claimTimeout: Invalid value: "abc": time: invalid duration "abc"`},
		"create, YAML":       {http.MethodPost, claimsPath, contentYAML, fmt.Sprintf(claim, `"shutdownTime":"x"`), `spec.shutdownTime: Invalid value: "x": parsing time`},
		"create, lenient":    {http.MethodPost, claimsPath + "?fieldValidation=Ignore", contentJSON, fmt.Sprintf(claim, `"claimTimeout":"abc"`), `spec.claimTimeout: Invalid value: "abc"`},
		"create, strict":     {http.MethodPost, claimsPath + "?fieldValidation=Strict", contentJSON, fmt.Sprintf(claim, `"foo":1,"claimTimeout":"abc"`), `spec.claimTimeout: Invalid value: "abc"`},
		"create, unknown":    {http.MethodPost, claimsPath + "?fieldValidation=Strict", contentJSON, fmt.Sprintf(claim, `"foo":1`), `unknown field "spec.foo"`},
		"update":             {http.MethodPut, setsPath + "/a", contentJSON, set(`[]`), `spec.scaleStrategy.maxUnavailable: Invalid value: "[]"`},
		"JSON patch":         {http.MethodPatch, setsPath + "/a", string(types.JSONPatchType), `[{"op":"replace","path":"/spec/replicas","value":"x"}]`, `spec.replicas: Invalid value: "x": must be an integer`},
		"merge patch":        {http.MethodPatch, setsPath + "/a", string(types.MergePatchType), `{"spec":{"replicas":"x"}}`, `spec.replicas: Invalid value: "x": must be an integer`},
		"apply":              {http.MethodPatch, setsPath + "/a?fieldManager=m", string(types.ApplyYAMLPatchType), set(`{}`), `spec.scaleStrategy.maxUnavailable: Invalid value: "{}"`},
		"apply onto nothing": {http.MethodPatch, claimsPath + "/a?fieldManager=m", string(types.ApplyYAMLPatchType), fmt.Sprintf(claim, `"claimTimeout":"abc"`), `spec.claimTimeout: Invalid value: "abc": time: invalid duration "abc"`},
		"apply, template":    {http.MethodPatch, setsPath + "/a?fieldManager=m", string(types.ApplyYAMLPatchType), strings.Replace(set("1"), pod, `"x"`, 1), `spec.template: Invalid value: "x": must be an object`},
		"apply, unknown":     {http.MethodPatch, claimsPath + "/a?fieldManager=m", string(types.ApplyYAMLPatchType), fmt.Sprintf(claim, `"foo":1`), `unknown field "spec.foo"`},
		"version":            {http.MethodPut, setsPath + "/a", contentJSON, strings.Replace(set("1"), `"name":"a"`, `"name":"a","resourceVersion":"x"`, 1), `metadata.resourceVersion: Invalid value: "x"`},
		"status":             {http.MethodPatch, setsPath + "/a/status", string(types.MergePatchType), `{"status":{"replicas":"x"}}`, `status.replicas: Invalid value: "x"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, body := c.do(t, tc.method, tc.path, tc.contentType, tc.body)
			status := decodeStatus(t, body)
			if code != http.StatusBadRequest && code != http.StatusUnprocessableEntity {
				t.Errorf("code %d, want 400 or 422", code)
			}
			if !strings.Contains(status.Message, tc.want) {
				t.Errorf("message %q\nlacks %q", status.Message, tc.want)
			}
		})
	}
}

// testUnknownFieldsWarn: a create that says nothing of fieldValidation stores the object, and the
// response names the fields that are unknown.
func testUnknownFieldsWarn(t *testing.T, c *conn) {
	const claim = `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"typo"},"spec":{"templateName":"a","replcas":3}}`
	for query, warns := range map[string]bool{"?dryRun=All": true, "?dryRun=All&fieldValidation=Ignore": false} {
		resp := c.send(t, http.MethodPost, claimsPath+query, contentJSON, contentJSON, claim)
		warnings := strings.Join(resp.Header.Values("Warning"), "\n")
		code, body := contentOf(t, resp)
		if code != http.StatusCreated || strings.Contains(warnings, `unknown field \"spec.replcas\"`) != warns {
			t.Errorf("%s: %d %s, warnings %q", query, code, body, warnings)
		}
	}
}

// testPatchesThatPanic sends JSON Patches at which the library that applies them panics.
func testPatchesThatPanic(t *testing.T, c *conn) {
	for _, patch := range []string{
		`[{"op":"test","path":"/spec/template/spec/containers","value":[null]}]`,
		`[{"op":"test","path":"/spec/template/spec/containers","value":[null]},{"op":"add","path":"/x","value":1e400}]`,
		`[{"op":"test","path":""}]`,
		`[{"op":"replace","path":""}]`,
		`[{"op":"add","path":"/metadata/finalizers","value":["x"]},{"op":"add","path":"/metadata/finalizers/0"},{"op":"test","path":"/metadata/finalizers","value":["a","b"]}]`,
		`[{"op":"add","path":"/metadata/annotations","value":null},{"op":"copy","from":"/metadata/annotations","path":"/metadata/labels"},{"op":"add","path":"/metadata/labels/x","value":"y"}]`,
	} {
		code, body := c.do(t, http.MethodPatch, setsPath+"/a?fieldValidation=Ignore", string(types.JSONPatchType), patch)
		if status := decodeStatus(t, body); code != http.StatusBadRequest || status.Reason != metav1.StatusReasonBadRequest {
			t.Errorf("%s: %d %s, want 400", patch, code, body)
		}
	}
}

func testStrategicMergePatch(t *testing.T, c *conn) {
	for _, path := range []string{setsPath + "/a", setsPath + "/a/status", setsPath + "/none"} {
		code, body := c.do(t, http.MethodPatch, path, "application/strategic-merge-patch+json; charset=utf-8", `{}`)
		status := decodeStatus(t, body)
		if code != http.StatusUnsupportedMediaType || status.Reason != metav1.StatusReasonUnsupportedMediaType {
			t.Errorf("%s: %d %s, want 415", path, code, status.Reason)
		}
		if !strings.Contains(status.Message, string(types.MergePatchType)) {
			t.Errorf("%s: the message does not say what is accepted: %s", path, status.Message)
		}
	}
}

func testApplyKeepsUnknownFields(t *testing.T, c *conn) {
	apply := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxTemplate","metadata":{"name":"applied"},"spec":{"template":` + pod + `}}`
	path := templatesPath + "/applied?fieldManager=m"
	if code, body := c.do(t, http.MethodPatch, path, string(types.ApplyYAMLPatchType), apply); code != http.StatusCreated {
		t.Fatalf("first apply: %d %s", code, body)
	}
	changed := strings.Replace(apply, `"image":"python"`, `"image":"node"`, 1)
	code, body := c.do(t, http.MethodPatch, path, string(types.ApplyYAMLPatchType), changed)
	if code != http.StatusOK {
		t.Fatalf("second apply: %d %s", code, body)
	}
	if want := `"fromTheFuture":{"a":[1]}`; !strings.Contains(compact(t, body), want) {
		t.Errorf("%s is lost: %s", want, body)
	}
	if want := `"image":"node"`; !strings.Contains(compact(t, body), want) {
		t.Errorf("%s is not applied: %s", want, body)
	}
}

func testTooLarge(t *testing.T, c *conn) {
	big := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"big"},"spec":{"templateName":"` +
		strings.Repeat("x", 2<<20) + `"}}`
	for _, tc := range []struct{ method, path, contentType string }{
		{http.MethodPost, claimsPath, contentJSON},
		{http.MethodPatch, claimsPath + "/big?fieldManager=m", string(types.ApplyYAMLPatchType)},
	} {
		code, body := c.do(t, tc.method, tc.path, tc.contentType, big)
		if code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d %s, want 413", tc.method, code, body)
		}
	}
}

func testDocuments(t *testing.T, c *conn) {
	_, body := c.do(t, http.MethodGet, "/openapi/v2", "", "")
	var v2 spec.Swagger
	if err := json.Unmarshal(body, &v2); err != nil {
		t.Fatal(err)
	}
	_, body = c.do(t, http.MethodGet, "/openapi/v3"+groupPath, "", "")
	var v3 spec3.OpenAPI
	if err := json.Unmarshal(body, &v3); err != nil {
		t.Fatal(err)
	}
	if v2.Info.Title != "Sandlot" || v3.Info.Title != "Sandlot" || v2.Info.Version == "" {
		t.Errorf("titles %q and %q, version %q", v2.Info.Title, v3.Info.Title, v2.Info.Version)
	}

	path := groupPath + "/namespaces/{namespace}/sandboxsets/{name}"
	var v2types []string
	if p, ok := v2.Paths.Paths[path]; ok && p.Patch != nil {
		v2types = p.Patch.Consumes
	}
	var v3types []string
	if p := v3.Paths.Paths[path]; p != nil && p.Patch != nil {
		for mediaType := range p.Patch.RequestBody.Content {
			v3types = append(v3types, mediaType)
		}
	}
	for version, got := range map[string][]string{"v2": v2types, "v3": v3types} {
		if all := strings.Join(got, " "); !strings.Contains(all, string(types.MergePatchType)) || strings.Contains(all, string(types.StrategicMergePatchType)) {
			t.Errorf("OpenAPI %s advertises patches of %v", version, got)
		}
	}

	// As served, where references can hide what the fields say of themselves.
	for name, schema := range v2.Definitions {
		describedEverywhere(t, "v2 "+name, schema)
	}
	for name, schema := range v3.Components.Schemas {
		describedEverywhere(t, "v3 "+name, *schema)
	}
}

func describedEverywhere(t *testing.T, name string, schema spec.Schema) {
	t.Helper()
	if !strings.Contains(name, "io.kruise.agents.") {
		return
	}
	for property, s := range schema.Properties {
		if s.Description == "" {
			t.Errorf("%s.%s has no description", name, property)
		}
	}
}

func testAnonymous(t *testing.T, c *conn) {
	anonymous, err := rest.HTTPClientFor(rest.AnonymousClientConfig(c.server.Config))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"/readyz": http.StatusOK, "/livez": http.StatusOK, "/healthz": http.StatusOK,
		"/metrics": http.StatusUnauthorized, "/version": http.StatusUnauthorized, "/openapi/v2": http.StatusUnauthorized,
		groupPath: http.StatusUnauthorized, setsPath: http.StatusUnauthorized, "/readyz/etcd": http.StatusUnauthorized,
	} {
		resp, err := anonymous.Get(c.server.Config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	if code, _ := c.do(t, http.MethodGet, "/metrics", "", ""); code != http.StatusOK {
		t.Errorf("/metrics for the admin: %d", code)
	}
}

// conn sends requests as they are, with the admin's certificate.
type conn struct {
	server *testutil.Server
	client *http.Client
}

func (c *conn) do(t *testing.T, method, path, contentType, body string) (int, []byte) {
	t.Helper()
	return contentOf(t, c.send(t, method, path, contentType, contentJSON, body))
}

// send sends a request with a body of a content type, and accepts an answer of another one.
func (c *conn) send(t *testing.T, method, path, contentType, accept, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.server.Config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", accept)
	resp, err := c.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// contentOf returns the code and the whole content of an answer.
func contentOf(t *testing.T, resp *http.Response) (int, []byte) {
	t.Helper()
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, content
}

func decodeStatus(t *testing.T, body []byte) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil || status.Kind != "Status" {
		t.Fatalf("not a Status (%v): %s", err, body)
	}
	return status
}

func compact(t *testing.T, js []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, js); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
