// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// examples are the topics of artifacts/example, and how to see that each takes effect.
var examples = map[string]func(t *testing.T, ns string){
	"agent-sandbox": func(t *testing.T, ns string) {
		const claims = "sandboxclaims.extensions.agents.x-k8s.io"
		await(t, ns, "--for=jsonpath={.status.readyReplicas}=3", "sandboxwarmpools.extensions.agents.x-k8s.io/python-agent")
		for _, object := range []string{claims + "/warm", claims + "/with-env", claims + "/by-template", "sandboxes.agents.x-k8s.io/notebook"} {
			await(t, ns, "--for=condition=Ready", object)
		}
		if got := kubectl(t, ns, "", "get", claims, "with-env", "-o", "jsonpath={.status.sandbox.name}"); got != "with-env" {
			t.Errorf("the claim with variables has sandbox %q", got)
		}
		if got := kubectl(t, ns, "", "get", "pod", "with-env", "-o", "jsonpath={.spec.containers[0].env}"); !strings.Contains(got, "TASK") {
			t.Errorf("its pod has the variables %s", got)
		}
		if got := kubectl(t, ns, "", "get", claims, "by-template", "-o", "jsonpath={.spec.warmPoolRef.name}"); got != "python-agent" && got != "" {
			t.Errorf("the older claim is of pool %q", got)
		}
		kubectl(t, ns, "", "get", "service", "notebook")
	},
	"agent-sandbox-autoscaling": func(t *testing.T, ns string) {
		const pool = "sandboxwarmpools.extensions.agents.x-k8s.io/python-by-claims"
		await(t, ns, "--for=jsonpath={.spec.replicas}=4", pool)
		await(t, ns, "--for=jsonpath={.status.readyReplicas}=4", pool)
	},
	"autoscaling": func(t *testing.T, ns string) {
		await(t, ns, "--for=jsonpath={.spec.replicas}=4", "sbs/python-scaled")
		await(t, ns, "--for=jsonpath={.status.availableReplicas}=4", "sbs/python-scaled")
	},
	"burst": func(t *testing.T, ns string) {
		await(t, ns, "--for=condition=Ready", "sbc/two-in-line")
		if made := kubectl(t, ns, "", "get", "sbx", "-o", "name"); len(strings.Fields(made)) < 2 {
			t.Errorf("there are %q", made)
		}
	},
	"claims": func(t *testing.T, ns string) {
		kubectl(t, ns, "", "wait", "--timeout="+expect.Patience.String(), "--for=condition=Ready", "sbc", "--all")
		claimed := kubectl(t, ns, "", "get", "sbc", "-o", "jsonpath={.items[*].status.claimedReplicas}")
		counts := strings.Fields(claimed)
		slices.Sort(counts)
		if got := strings.Join(counts, " "); got != "1 10 7" {
			t.Errorf("the claims have %q sandboxes", got)
		}
	},
	"e2b": func(t *testing.T, ns string) {
		await(t, ns, "--for=jsonpath={.status.availableReplicas}=5", "sbs/base")
	},
	"pausing": func(t *testing.T, ns string) {
		if pods := kubectl(t, ns, "", "get", "pods", "-o", "name"); pods != "" {
			t.Errorf("what is paused has %s", pods)
		}
		kubectl(t, ns, "", "patch", "sbx", "paused-notebook", "--type=merge", "-p", `{"spec":{"paused":false}}`)
		await(t, ns, "--for=condition=Ready", "sbx/paused-notebook")
		kubectl(t, ns, "", "get", "pod", "paused-notebook")
	},
	"quota": func(t *testing.T, ns string) {
		await(t, ns, `--for=jsonpath={.status.hard.count/sandboxclaims\.agents\.kruise\.io}=3`, "quota/sandboxes")
		expect.FilledPool(t, admin(t), ns, 3)
		for i := range 4 {
			claim := strings.Replace(builders.ClaimYAML, "name: claim", "name: claim-"+string(rune('a'+i)), 1)
			_, err := tryKubectl(t, "", ns, claim, "create", "-f", "-")
			if refused := err != nil && strings.Contains(err.Error(), "exceeded quota"); refused != (i == 3) || err != nil && !refused {
				t.Errorf("claim %d: %v", i+1, err)
			}
		}
	},
	"rbac": func(t *testing.T, ns string) {
		for what, want := range map[string]string{
			"create sandboxclaims": "yes", "create sandboxclaims/release": "yes", "get sandboxes": "yes", "create pods/exec": "yes",
			"update sandboxsets": "no", "delete sandboxes": "no", "create pods": "no",
		} {
			verb, resource, _ := strings.Cut(what, " ")
			resource, subresource, _ := strings.Cut(resource, "/")
			if strings.HasPrefix(resource, "sandbox") {
				resource += ".agents.kruise.io"
			}
			out, _, _ := plane.Kubectl(t.Context(), "", nil, "auth", "can-i", verb, resource, "--subresource="+subresource, // no is an error
				"--namespace="+ns, "--as=anyone", "--as-group=claimers")
			if got := strings.TrimSpace(out); got != want {
				t.Errorf("may a claimer %s? %q, want %s", what, got, want)
			}
		}
	},
	"runtime": func(t *testing.T, ns string) {
		// Simulated containers run nothing. The double takes the token at their addresses.
		runtimetest.Start(t).Follow(t, admin(t), ns, "")
		await(t, ns, "--for=jsonpath={.status.availableReplicas}=3", "sbs/python-runtime")
		if labelled := kubectl(t, ns, "", "get", "pods", "-l", "sandlot.io/agent-runtime=true", "-o", "name"); len(strings.Fields(labelled)) != 3 {
			t.Errorf("pods with an agent-runtime: %q", labelled)
		}
	},
	"templates": func(t *testing.T, ns string) {
		await(t, ns, "--for=jsonpath={.status.availableReplicas}=3", "sbs/python-small")
		await(t, ns, "--for=jsonpath={.status.availableReplicas}=2", "sbs/python-large")
		cpus := kubectl(t, ns, "", "get", "pods", "-l", "size=large", "-o", "jsonpath={.items[*].spec.containers[0].resources.requests.cpu}")
		if cpus != "2 2" {
			t.Errorf("the large ones have %q cpus", cpus)
		}
	},
	"volumes": func(t *testing.T, ns string) {
		await(t, ns, "--for=jsonpath={.status.availableReplicas}=2", "sbs/python-volumes")
		if bound := kubectl(t, ns, "", "get", "pvc", "-o", "jsonpath={.items[*].status.phase}"); bound != "Bound Bound" {
			t.Errorf("volume claims are %q", bound)
		}
	},
}

// TestExamples applies every folder of examples, and sees that it does what it says.
func TestExamples(t *testing.T) {
	t.Parallel()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob(filepath.Join(root, "artifacts", "example", "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range folders {
		found[filepath.Base(filepath.Dir(file))] = true
	}
	for topic := range found {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			check := examples[topic]
			if check == nil {
				t.Fatal("it is not known what this one does")
			}
			ns := namespace(t)
			examples := filepath.Join(root, "artifacts", "example") + string(os.PathSeparator)
			verb := "apply"
			if topic == "claims" { // of which the names are made, from the pool beside them
				verb = "create"
				kubectl(t, ns, "", "apply", "-f", examples)
				await(t, ns, "--for=jsonpath={.status.availableReplicas}=20", "sbs/python")
			}
			kubectl(t, ns, "", verb, "-f", examples+topic+string(os.PathSeparator))
			check(t, ns)
		})
	}
	if len(found) < len(examples) {
		t.Errorf("there are examples of %v", found)
	}
}

// await waits as kubectl does.
func await(t *testing.T, ns, condition, object string) {
	t.Helper()
	kubectl(t, ns, "", "wait", "--timeout="+expect.Patience.String(), condition, object)
}
