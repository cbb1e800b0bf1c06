// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

func testApply(t *testing.T, k *kubectl) {
	steps := []struct{ manifest, want string }{
		{builders.PoolYAML, "pool created"},
		{builders.PoolYAML, "pool unchanged"},
		{strings.Replace(builders.PoolYAML, "busybox:1", "busybox:2", 1), "pool configured"},
		{strings.Replace(builders.PoolYAML, "replicas: 3", "replicas: 1", 1), "pool configured"},
		{builders.ClaimYAML, "claim created"},
		{builders.ClaimYAML, "claim unchanged"},
		{builders.ClaimYAML + "  ttlAfterCompleted: 2h\n", "claim configured"},
		{builders.ClaimYAML, "claim configured"},
		{builders.ClaimYAML, "claim unchanged"},
		{templateYAML, "template created"},
		{templateYAML, "template unchanged"},
		{strings.Replace(templateYAML, "busybox:1", "busybox:2", 1), "template configured"},
		{sandboxYAML, "alone created"},
		{sandboxYAML, "alone unchanged"},
		{sandboxYAML + "  shutdownTime: \"2099-01-01T00:00:00Z\"\n", "alone configured"},
	}
	for i, step := range steps {
		if out := k.feed(t, step.manifest, "apply", "-f", "-"); !strings.Contains(out, step.want) {
			t.Errorf("step %d: %q, want %q", i, out, step.want)
		}
	}
	if image := k.do(t, "get", "sbs/pool", "-o", "jsonpath={.spec.template.spec.containers[*].image}"); image != "busybox:1" {
		t.Errorf("the pool has images %q", image)
	}
	// What one apply added, the next without it took away again: the default is back.
	if ttl := k.claim(t, "", "get", "sbc", "claim").Spec.TTLAfterCompleted; ttl == nil || ttl.Duration.String() != "1h0m0s" {
		t.Errorf("ttlAfterCompleted is %v", ttl)
	}
	k.fail(t, builders.ClaimYAML+"  replicas: 2\n", []string{"apply", "-f", "-"}, "spec.replicas", "replicas is immutable")
}

func testApplyServerSide(t *testing.T, k *kubectl) {
	apply := []string{"apply", "--server-side", "-f", "-"}
	templates, sandbox := builders.PoolYAML+"---"+templateYAML, "---"+sandboxYAML
	changed := strings.ReplaceAll(templates, "busybox:1", "busybox:2")
	for _, manifest := range []string{templates + sandbox, templates + sandbox, changed + sandbox} {
		if out := k.feed(t, manifest, apply...); strings.Count(out, "serverside-applied") != 3 {
			t.Errorf("applied:\n%s", out)
		}
	}
	if image := k.do(t, "get", "sbs/pool", "-o", "jsonpath={.spec.template.spec.containers[*].image}"); image != "busybox:2" {
		t.Errorf("the pool has images %q", image)
	}
	k.fail(t, strings.ReplaceAll(sandboxYAML, "busybox:1", "busybox:2"), apply, "spec.template", "not supported by this version of Sandlot yet")
	// A field that is no longer applied goes away.
	k.feed(t, sandboxYAML+"  shutdownTime: \"2099-01-01T00:00:00Z\"\n", apply...)
	k.feed(t, sandboxYAML, apply...)
	if spec := k.do(t, "get", "sbx/alone", "-o", "jsonpath={.spec}"); strings.Contains(spec, "shutdownTime") {
		t.Errorf("shutdownTime is still there: %s", spec)
	}
}

// Applying a claim that does not exist creates it, so it binds.
func testApplyAbsent(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 3)
	applied := k.claim(t, builders.ClaimYAML, "apply", "--server-side", "-f", "-")
	names := expect.Claimed(t, applied, 1)
	if sandbox := k.server.sandboxes(t, k.namespace)[names[0]]; sandbox.ResourceVersion != applied.ResourceVersion {
		t.Errorf("claim at %s, its sandbox at %s: not one transaction", applied.ResourceVersion, sandbox.ResourceVersion)
	}
	again := k.claim(t, builders.ClaimYAML, "apply", "--server-side", "-f", "-")
	if diff := cmp.Diff(applied, again); diff != "" {
		t.Errorf("applying the same again changed something:\n%s", diff)
	}
	changed := k.claim(t, builders.ClaimYAML+"  ttlAfterCompleted: 2h\n", "apply", "--server-side", "-f", "-")
	if diff := cmp.Diff(names, expect.Claimed(t, changed, 1)); diff != "" {
		t.Errorf("applying a change bound other sandboxes:\n%s", diff)
	}
	expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, "pool", 3)
	if n := len(k.server.sandboxes(t, k.namespace)); n != 4 {
		t.Errorf("%d sandboxes, want the one claimed and three in the pool", n)
	}
}

func testApplyConflict(t *testing.T, k *kubectl) {
	alice := []string{"apply", "--server-side", "--field-manager=alice", "-f", "-"}
	bob := []string{"apply", "--server-side", "--field-manager=bob", "-f", "-"}
	force := slices.Concat(bob, []string{"--force-conflicts"})

	k.feed(t, builders.PoolYAML, alice...)
	k.fail(t, strings.Replace(builders.PoolYAML, "replicas: 3", "replicas: 4", 1), bob, "conflict", `"alice"`, ".spec.replicas")
	k.feed(t, strings.Replace(builders.PoolYAML, "replicas: 3", "replicas: 4", 1), force...)

	k.feed(t, builders.ClaimYAML+"  ttlAfterCompleted: 2h\n  labels: {example.com/team: alice}\n", alice...)
	k.fail(t, builders.ClaimYAML+"  ttlAfterCompleted: 3h\n", bob, "conflict", `"alice"`, ".spec.ttlAfterCompleted")
	// Labels are granular: both may have theirs.
	k.feed(t, builders.ClaimYAML+"  labels: {example.com/app: bob}\n", bob...)
	labels := k.claim(t, "", "get", "sbc", "claim").Spec.Labels
	if diff := cmp.Diff(map[string]string{"example.com/team": "alice", "example.com/app": "bob"}, labels); diff != "" {
		t.Errorf("labels:\n%s", diff)
	}
}

// Pod templates keep what this server does not know: a newer Kubernetes may.
func testUnknownFields(t *testing.T, k *kubectl) {
	const manifest = `
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxSet
metadata:
  name: NAME
spec:
  replicas: 1
  template:
    futureTop: 1
    metadata:
      labels: {app: a}
    spec:
      futureSpec: {deep: [1, 2.5, "x", {z: []}]}
      containers:
      - name: main
        image: IMAGE
        futureContainer: true
`
	parse := func(s string) (template any) {
		if err := json.Unmarshal([]byte(s), &template); err != nil {
			t.Fatalf("%v in %s", err, s)
		}
		return template
	}
	want := func(image string) any {
		return parse(`{"futureTop":1,"metadata":{"labels":{"app":"a"}},"spec":{"futureSpec":{"deep":[1,2.5,"x",{"z":[]}]},` +
			`"containers":[{"name":"main","image":"` + image + `","futureContainer":true}]}}`)
	}
	ways := map[string][]string{
		"create":      {"create", "-f", "-"},
		"apply":       {"apply", "-f", "-"},
		"server-side": {"apply", "--server-side", "-f", "-"},
	}
	feed := func(manifest string, command ...string) {
		t.Helper()
		stdout, stderr, code := k.run(t, manifest, command...)
		for _, unknown := range []string{"futureTop", "spec.futureSpec", "spec.containers[0].futureContainer"} {
			if code != 0 || !strings.Contains(stderr, fmt.Sprintf("Warning: unknown field %q\n", "spec.template."+unknown)) {
				t.Errorf("kubectl %s ended with %d, and does not warn of %s:\n%s%s", strings.Join(command, " "), code, unknown, stdout, stderr)
			}
		}
	}
	for name, command := range ways {
		named := strings.Replace(manifest, "NAME", name, 1)
		feed(strings.Replace(named, "IMAGE", "busybox:1", 1), command...)
		check := func(image, path string, args ...string) {
			t.Helper()
			got := parse(k.do(t, append(args, "-o", "jsonpath={"+path+"}")...))
			if diff := cmp.Diff(want(image), got); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, strings.Join(args, " "), diff)
			}
		}
		check("busybox:1", ".spec.template", "get", "sbs", name)
		expect.FullPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, name, 1)
		check("busybox:1", ".items[0].spec.template", "get", "sbx", "--selector", "agents.kruise.io/sandbox-pool="+name)
		if name != "create" { // and a change next to them
			feed(strings.Replace(named, "IMAGE", "busybox:2", 1), command...)
			check("busybox:2", ".spec.template", "get", "sbs", name)
		}
	}
}

func testDiff(t *testing.T, k *kubectl) {
	expect.FilledPool(t, k.server.Client.AgentsV1alpha1(), k.namespace, 3)
	before := k.server.sandboxes(t, k.namespace)
	if _, err := exec.LookPath("diff"); err != nil {
		t.Skipf("kubectl diff needs one: %v", err)
	}
	// It ends with 1 where there is a difference.
	out, stderr, code := k.run(t, builders.ClaimYAML, "diff", "-f", "-")
	if code != 1 || !strings.Contains(out, "+  phase: Completed") {
		t.Errorf("diff of an absent claim ended with %d:\n%s%s", code, out, stderr)
	}
	if diff := cmp.Diff(before, k.server.sandboxes(t, k.namespace)); diff != "" {
		t.Errorf("kubectl diff changed the pool:\n%s", diff)
	}
	k.feed(t, builders.ClaimYAML, "apply", "-f", "-")
	k.feed(t, builders.ClaimYAML, "diff", "-f", "-")
	out, stderr, code = k.run(t, builders.ClaimYAML+"  ttlAfterCompleted: 2h\n", "diff", "-f", "-")
	if code != 1 || !strings.Contains(out, "+  ttlAfterCompleted: 2h0m0s") {
		t.Errorf("diff of a changed claim ended with %d:\n%s%s", code, out, stderr)
	}
}
