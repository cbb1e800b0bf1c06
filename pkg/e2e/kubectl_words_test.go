// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// testWarnings: what kubectl shows its users of a claim that gets too little, and of
// what a deletion leaves.
func testWarnings(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 2)
	k.feed(t, builders.ClaimYAML, "create", "-f", "-")
	missing := strings.NewReplacer("name: claim", "name: typo", "templateName: pool", "templateName: pol").Replace(builders.ClaimYAML)
	gold := strings.Replace(builders.ClaimYAML, "name: claim", "name: gold", 1) + "  warmPool: gold\n"
	const byLabel = " --selector agents.kruise.io/claim-name=claim"
	for _, step := range []struct {
		stdin string
		args  []string
		want  string // empty for no warning
	}{
		{missing, []string{"create", "--dry-run=server", "-f", "-"}, `Warning: dry run: claimed 0/1: SandboxSet pol not found in namespace ` + k.namespace},
		{missing, []string{"create", "-f", "-"}, `Warning: claimed 0/1: SandboxSet pol not found in namespace ` + k.namespace + `; it continues`},
		{gold, []string{"apply", "--server-side", "-f", "-"}, `Warning: claimed 0/1: SandboxSet gold not found in namespace ` + k.namespace + `; it continues`},
		{"", []string{"delete", "sbc", "typo", "gold"}, ""},
		{"", []string{"delete", "sbc", "claim", "--dry-run=server"}, "Warning: 1 sandbox of claim claim stays: release it"},
		{"", []string{"delete", "sbc", "claim"}, byLabel},
		{"", []string{"delete", "sbs", "pool"}, "Warning: 1 claimed sandboxes of SandboxSet pool stay with those who claimed them: kubectl get sandboxes"},
	} {
		stdout, stderr, code := k.run(t, step.stdin, step.args...)
		if code != 0 || !strings.Contains(stderr, step.want) || step.want == "" && stderr != "" {
			t.Errorf("kubectl %s ended with %d and said:\n%s%s\nwant %q", strings.Join(step.args, " "), code, stdout, stderr, step.want)
		}
	}
	// The line that is given works as it stands.
	k.do(t, strings.Fields("delete sandboxes --namespace "+k.namespace+byLabel)...)
	k.fail(t, strings.Replace(builders.ClaimYAML, "spec:", "spec:\n  claimTimeout: 60", 1), []string{"create", "--validate=false", "-f", "-"},
		`must be a duration with its unit, as a string: write "60s" for 60 seconds`)
}

// testExamples: the folder of examples is applied as it stands, again too, and the claims
// below it are created.
func testExamples(t *testing.T, k *kubectl) {
	examples := filepath.Join("..", "..", "artifacts", "example")
	for _, want := range []string{"sandboxset.agents.kruise.io/python created", "sandboxset.agents.kruise.io/python unchanged"} {
		if out := k.do(t, "apply", "-f", examples); !strings.Contains(out, want) {
			t.Errorf("apply -f artifacts/example says %q, want %q", out, want)
		}
	}
	k.do(t, "wait", "--for=jsonpath={.status.availableReplicas}=20", "--timeout", expect.Patience.String(), "sbs/python")
	for name, n := range map[string]int{"one": 1, "batch": 10, "all-or-nothing": 7} {
		claim := k.claim(t, "", "create", "-f", filepath.Join(examples, "claims", name+".yaml"))
		expect.Claimed(t, claim, n)
	}
}

// testExamplesTogether: the folders of examples are applied one after the other to one namespace,
// without a word on stderr. Again, and nothing has changed: no folder writes to what another one has.
func testExamplesTogether(t *testing.T, k *kubectl) {
	root := filepath.Join("..", "..", "artifacts", "example")
	files, err := filepath.Glob(filepath.Join(root, "*", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	folders := sets.New(root)
	for _, file := range files {
		folders.Insert(filepath.Dir(file))
	}
	// Those of claims are created, and the others are for a cluster.
	for _, other := range []string{"claims", "quota", "rbac", "autoscaling", "agent-sandbox-autoscaling"} {
		folders.Delete(filepath.Join(root, other))
	}
	for _, want := range []string{"created", "unchanged"} {
		for _, folder := range sets.List(folders) {
			stdout, stderr, code := k.run(t, "", "apply", "-f", folder)
			if code != 0 || stderr != "" {
				t.Errorf("apply -f %s ended with %d and said:\n%s%s", folder, code, stdout, stderr)
			}
			for line := range strings.Lines(stdout) {
				if !strings.HasSuffix(line, " "+want+"\n") {
					t.Errorf("apply -f %s says %q, want %s", folder, line, want)
				}
			}
		}
	}
}
