// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestDiscovery finds our kinds as a user of the cluster does.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	c := admin(t)
	kubectl(t, ns, builders.PoolYAML, "apply", "-f", "-")
	expect.FullPool(t, c, ns, "pool", 3)
	kubectl(t, ns, builders.ClaimYAML, "create", "-f", "-")

	t.Run("api-resources", func(t *testing.T) {
		for _, line := range []string{
			"sandboxclaims sbc,sandboxclaim agents.kruise.io/v1alpha1 true SandboxClaim",
			"sandboxes sbx,sandbox agents.kruise.io/v1alpha1 true Sandbox",
			"sandboxsets sbs agents.kruise.io/v1alpha1 true SandboxSet",
			"sandboxtemplates sbt,sandboxtemplate agents.kruise.io/v1alpha1 true SandboxTemplate",
		} {
			lines := fields(kubectl(t, ns, "", "api-resources", "--api-group=agents.kruise.io", "--no-headers"))
			if !slices.Contains(lines, line) {
				t.Errorf("%q is not in:\n%s", line, strings.Join(lines, "\n"))
			}
		}
	})
	t.Run("category", func(t *testing.T) {
		all := kubectl(t, ns, "", "get", "sandlot", "-o", "name")
		for _, name := range []string{"sandboxset.agents.kruise.io/pool", "sandboxclaim.agents.kruise.io/claim", "sandbox.agents.kruise.io/pool-"} {
			if !strings.Contains(all, name) {
				t.Errorf("%s is not in what has the category sandlot:\n%s", name, all)
			}
		}
	})
	t.Run("explain", func(t *testing.T) {
		for path, want := range map[string]string{
			"sbc.spec.replicas":    "FIELD: replicas <integer>",
			"sandboxset.spec":      "replicas",
			"sbx.status":           "phase",
			"sandboxtemplate":      "KIND: SandboxTemplate",
			"sandboxclaims.status": "claimedReplicas",
		} {
			said := strings.Join(fields(kubectl(t, ns, "", "explain", path)), "\n")
			if !strings.Contains(said, want) {
				t.Errorf("explain %s does not say %q:\n%s", path, want, said)
			}
		}
	})
	t.Run("columns", func(t *testing.T) {
		table := fields(kubectl(t, ns, "", "get", "sbc"))
		if len(table) != 2 || !strings.HasPrefix(table[0], "NAME PHASE") || !strings.HasPrefix(table[1], "claim Completed") {
			t.Errorf("claims are shown as:\n%s", strings.Join(table, "\n"))
		}
	})
	t.Run("apiservice", func(t *testing.T) {
		kubectl(t, ns, "", "wait", "--for=condition=Available", "apiservice/v1alpha1.agents.kruise.io", "--timeout=60s")
		if skip := kubectl(t, ns, "", "get", "apiservice/v1alpha1.agents.kruise.io", "-o", "jsonpath={.spec.insecureSkipTLSVerify}"); skip != "" {
			t.Error("the certificate of our server is not verified")
		}
	})
}

// fields returns the lines of a table, with single spaces.
func fields(table string) []string {
	var lines []string
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}
