// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// TestApplyMatchesItemsByDefaultedKey: an item of a list that does not set one of its keys belongs to the
// manager who applied it, as one that sets all of them.
func TestApplyMatchesItemsByDefaultedKey(t *testing.T) {
	server := testutil.Start(t)
	client, err := rest.HTTPClientFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	templates := 0
	for _, version := range v1alpha1.ServedVersions {
		resources, err := server.Client.Discovery().ServerResourcesForGroupVersion(version.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, served := range resources.APIResources {
			spec := minimalSpecs[version.Group+" "+served.Kind]
			if strings.Contains(served.Name, "/") || !strings.Contains(spec, `"containers"`) {
				continue
			}
			templates++
			m := &manifests{conn: &conn{server: server, client: client}, path: fmt.Sprintf("/apis/%s/namespaces/default/%s", version, served.Name)}
			manifest := func(name, port string) string {
				return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`, version, served.Kind, name,
					strings.Replace(spec, `"name":"main"`, `"name":"main","ports":[{"containerPort":80,`+port+`}]`, 1))
			}
			for i, protocol := range []string{"", `,"protocol":"TCP"`} {
				name := fmt.Sprintf("ports-%s-%s-%d", version.Group, version.Version, i)
				first, same, other := manifest(name, `"name":"web"`+protocol), manifest(name, `"protocol":"TCP","name":"web"`), manifest(name, `"name":"http"`+protocol)
				if code, _, answer := m.apply(t, name, "one", first); code != http.StatusCreated {
					t.Fatalf("%s %s: %d %s", version, served.Name, code, answer)
				}
				code, _, answer := m.apply(t, name, "two", other)
				if code != http.StatusConflict {
					t.Errorf("%s %s: another name of a port that has an owner%s: %d %s", version, served.Name, protocol, code, answer)
				}
				code, is, answer := m.apply(t, name, "two&force=true", other)
				if code == http.StatusUnprocessableEntity && served.Kind == "Sandbox" {
					continue // its template cannot change
				}
				if code != http.StatusOK {
					t.Fatalf("%s %s: with force: %d %s", version, served.Name, code, answer)
				}
				owners := map[string]bool{}
				for _, entry := range is.GetManagedFields() {
					owners[entry.Manager] = strings.Contains(entry.FieldsV1.GetRawString(), `k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name"`)
				}
				if owners["one"] || !owners["two"] {
					t.Errorf("%s %s: after a forced apply the name of the port belongs to %v: %v", version, served.Name, owners, is.GetManagedFields())
				}
				if code, _, answer := m.apply(t, name, "one", same); code != http.StatusConflict {
					t.Errorf("%s %s: the first owner applies again: %d %s", version, served.Name, code, answer)
				}
			}
		}
	}
	if templates < 4 {
		t.Errorf("%d resources have a template", templates)
	}
}
