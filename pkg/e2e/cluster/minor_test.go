// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestMinorOfKubernetes holds the cluster of these tests to the minor that is asked for
// (KUBERNETES=1.36), and our programs to taking it as it is: what an older one does not
// serve is not asked for again and again.
func TestMinorOfKubernetes(t *testing.T) {
	version, err := admin(t).kube.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if minor := os.Getenv("KUBERNETES"); minor != "" && version.Major+"."+version.Minor != minor {
		t.Errorf("the cluster is %s, want a %s", version, minor)
	}
	for _, p := range sandlot.Processes() {
		if err := p.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(readLog(t, p.Log())) {
			// Sandboxes are served by ourselves, and not while other tests restart the cluster.
			if strings.Contains(line, "could not find the requested resource") && !strings.Contains(line, "Sandbox") {
				t.Errorf("%s: %s", p.Name(), line)
			}
		}
	}
}

func readLog(t *testing.T, path string) string {
	t.Helper()
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// servesMutatingPolicies reports whether the cluster has policies that mutate, as it does
// since 1.36. Where it does not, our servers say that they go without.
func servesMutatingPolicies(t *testing.T) bool {
	t.Helper()
	const resource, said = "mutatingadmissionpolicies", `"Disabling an admission plugin, because the cluster does not serve its objects" plugin="MutatingAdmissionPolicy"`
	served, err := admin(t).kube.Discovery().ServerResourcesForGroupVersion(admissionregistrationv1.SchemeGroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range served.APIResources {
		if r.Name == resource {
			return true
		}
	}
	for _, p := range sandlot.APIServers() {
		if !strings.Contains(readLog(t, p.Log()), said) {
			t.Errorf("%s does not say that it goes without %s", p.Name(), resource)
		}
	}
	return false
}
