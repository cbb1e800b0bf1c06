// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// samples are the specs of objects that can be made, by where they are made.
var samples = map[string]string{
	"agents.kruise.io/v1alpha1/sandboxclaims": `{"templateName":"stock","replicas":1,"claimTimeout":"30s","labels":{"a":"b"},
		"shutdownTime":"2036-01-01T00:00:00Z","pauseTime":"2035-01-01T00:00:00Z","lifecycle":{"shutdownPolicy":"Delete"}}`,
	"agents.kruise.io/v1alpha1/sandboxes": `{"template":` + pod + `,"pauseTime":"2035-01-01T00:00:00Z","shutdownTime":"2036-01-01T00:00:00Z"}`,
	"agents.kruise.io/v1alpha1/sandboxsets": `{"replicas":0,"template":` + pod + `,"revisionHistoryLimit":3,"maxFreshSandboxes":7,
		"scaleStrategy":{"maxUnavailable":1,"burst":2}}`,
	"agents.kruise.io/v1alpha1/sandboxtemplates":           `{"template":` + pod + `,"maxFreshSandboxes":3,"envVarsInjectionPolicy":"Allowed"}`,
	"extensions.agents.x-k8s.io/v1beta1/sandboxclaims":     `{"warmPoolRef":{"name":"stock"},"lifecycle":{"shutdownPolicy":"Delete"},"additionalPodMetadata":{"labels":{"app.sandbox.users.io/a":"b"}}}`,
	"extensions.agents.x-k8s.io/v1alpha1/sandboxclaims":    `{"sandboxTemplateRef":{"name":"base"},"warmpool":"stock","lifecycle":{"shutdownPolicy":"Retain"}}`,
	"extensions.agents.x-k8s.io/v1beta1/sandboxtemplates":  `{"podTemplate":` + pod + `,"networkPolicyManagement":"Unmanaged"}`,
	"extensions.agents.x-k8s.io/v1alpha1/sandboxtemplates": `{"podTemplate":` + pod + `,"networkPolicy":{}}`,
	"extensions.agents.x-k8s.io/v1beta1/sandboxwarmpools":  `{"replicas":0,"sandboxTemplateRef":{"name":"base"},"updateStrategy":{"type":"Recreate"}}`,
	"extensions.agents.x-k8s.io/v1alpha1/sandboxwarmpools": `{"replicas":0,"sandboxTemplateRef":{"name":"base"}}`,
	"agents.x-k8s.io/v1beta1/sandboxes":                    `{"podTemplate":` + pod + `,"operatingMode":"Suspended","shutdownTime":"2036-01-01T00:00:00Z"}`,
	"agents.x-k8s.io/v1alpha1/sandboxes":                   `{"podTemplate":` + pod + `,"replicas":1}`,
}

// view is a resource, with its subresources, in one of the groups and versions that serve it.
type view struct {
	gv   schema.GroupVersion
	main metav1.APIResource
	// subresources are those that can be updated or patched.
	subresources []string
}

func (v *view) String() string { return v.gv.String() + "/" + v.main.Name }

func (v *view) path(name, subresource string) string {
	path := "/apis/" + v.gv.String() + "/namespaces/default/" + v.main.Name
	for _, part := range []string{name, subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

// discover returns what the server says that it serves.
func (w *words) discover(t *testing.T) []*view {
	t.Helper()
	var views []*view
	for _, gv := range v1alpha1.ServedVersions {
		list, err := w.server.Client.Discovery().ServerResourcesForGroupVersion(gv.String())
		if err != nil {
			t.Fatal(err)
		}
		mains := map[string]*view{}
		for _, resource := range list.APIResources {
			if !strings.Contains(resource.Name, "/") {
				mains[resource.Name] = &view{gv: gv, main: resource}
				views = append(views, mains[resource.Name])
			}
		}
		for _, resource := range list.APIResources {
			of, subresource, is := strings.Cut(resource.Name, "/")
			writes := slices.Contains(resource.Verbs, "update") || slices.Contains(resource.Verbs, "patch")
			if is && writes && subresource != "proxy" { // which forwards, and stores nothing
				mains[of].subresources = append(mains[of].subresources, subresource)
			}
		}
	}
	if len(views) != len(samples) {
		t.Errorf("%d resources are served, and there are samples of %d", len(views), len(samples))
	}
	return views
}

// startWithViews starts a server with what the samples refer to.
func startWithViews(t *testing.T) (*words, []*view) {
	t.Helper()
	w := &words{conn: &conn{server: testutil.Start(t)}}
	var err error
	if w.client, err = rest.HTTPClientFor(w.server.Config); err != nil {
		t.Fatal(err)
	}
	set := w.server.SetOf(t, w.server.Template(t, "default", "base"), "stock", "", 9)
	w.server.Stock(t, set, 0, 9)
	return w, w.discover(t)
}

// create makes an object from a sample, and returns all views of it, that in which it is made
// first.
func (w *words) create(t *testing.T, made *view, all []*view, name string) []*view {
	t.Helper()
	spec, ok := samples[made.String()]
	if !ok {
		t.Fatalf("there is no sample of %s", made)
	}
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`, made.gv, made.main.Kind, name, spec)
	uid := w.must(t, http.MethodPost, made.path("", "")+"?fieldManager=creator", contentJSON, body).GetUID()
	views := []*view{made}
	for _, other := range all {
		if other == made {
			continue
		}
		code, answer := w.do(t, http.MethodGet, other.path(name, ""), contentJSON, "")
		object := &unstructured.Unstructured{}
		if code == http.StatusOK && object.UnmarshalJSON(answer) == nil && object.GetUID() == uid {
			views = append(views, other)
		}
	}
	return views
}

func (w *words) get(t *testing.T, path string) *unstructured.Unstructured {
	t.Helper()
	return w.must(t, http.MethodGet, path, contentJSON, "")
}

// marshal returns the text of a value.
func marshal(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func decodeJSON(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
