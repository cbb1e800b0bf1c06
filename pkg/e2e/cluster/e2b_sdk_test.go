// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/e2bsdk"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// TestE2BSDK runs the npm SDK against two replicas of the gateway, with the rights, flags
// and keys of the install: what is made through one is reached through the other at once.
func TestE2BSDK(t *testing.T) {
	t.Parallel()
	sdks, err := e2bsdk.Install()
	if errors.Is(err, e2bsdk.ErrNoNPM) {
		t.Log("NOT TESTED:", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := program.Build(bin, "sandlot-gateway", "sandlot-runtime", "kubectl-sandlot"); err != nil {
		t.Fatal(err)
	}
	ns, other := e2bTeam(t), e2bTeam(t)
	fleet := runtimetest.Start(t)
	gateways := newE2BGateways(t, bin, fleet.CIDR())
	first, second := gateways.start(t), gateways.start(t)
	key := func(t *testing.T, ns, name string) string {
		t.Helper()
		key := e2bKey(t, bin, ns, name)
		gateways.awaitRights(t, key, first, second)
		return key
	}
	otherKey := key(t, other, "other")

	// These are there before any of them has a token: one that came later could have the
	// address, and the runtime, of one that is gone.
	pools := map[string]int32{"lifecycle": 1, "runtime": 1, "list": 6, "keys": 1, "storm": 40}
	for name, replicas := range pools {
		e2bPool(t, ns, name, replicas)
	}
	fleet.Follow(t, admin(t), ns, v1alpha1.LabelSandboxPool+"!=runtime")
	runtimetest.Follow(t, admin(t), ns, v1alpha1.LabelSandboxPool+"=runtime", func(ip string) (func(), error) { return program.Runtime(t, bin, ip) })
	for name, replicas := range pools {
		expect.FullPool(t, admin(t), ns, name, replicas)
	}
	for _, story := range []string{"lifecycle", "runtime", "list", "keys", "storm"} {
		t.Run(story, func(t *testing.T) {
			at := e2bsdk.Gateway{API: first.url, Sandboxes: second.url, Team: ns, Key: key(t, ns, story)}
			sdks.Tell(t, at, story, "POOL="+story, "OTHER_KEY="+otherKey, "DIR="+t.TempDir(), "NODE_EXTRA_CA_CERTS="+gateways.caFile)
		})
	}

	// The server has written who claims: the team, regardless of who sent the requests.
	claims, err := admin(t).SandboxClaims(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(claims.Items) == 0 {
		t.Error("the claims of sandboxes that have just gone are gone already")
	}
	for i := range claims.Items {
		if claim := &claims.Items[i]; !v1alpha1.IsE2BClaim(claim) {
			t.Errorf("claim %s is of %q", claim.Name, claim.Annotations[v1alpha1.AnnotationClaimedBy])
		}
	}
	first.Stop(t)
	second.Stop(t)
}

// e2bTeam makes a namespace as the install says that one of a team has to be.
func e2bTeam(t *testing.T) string {
	t.Helper()
	ns := namespace(t)
	folder := kustomized(t, "namespace: "+ns+"\ncomponents: [%s/components/e2b-team]\n")
	if _, _, err := plane.Kubectl(t.Context(), "", nil, "apply", "--kustomize", folder); err != nil {
		t.Fatal(err)
	}
	return ns
}

// e2bKey makes an API key of a team as its administrator does.
func e2bKey(t *testing.T, bin, ns, name string) string {
	t.Helper()
	plugin := filepath.Join(bin, "kubectl-sandlot")
	stdout, stderr, err := runProgram(t, plugin, "e2b-key", "create", "-n", ns, "--kubeconfig", plane.Kubeconfig(), "--name", name)
	key, whole := strings.CutSuffix(stdout, "\n")
	if err != nil || !whole || len(key) < 20 {
		t.Fatalf("making a key: %v\n%s", err, stderr)
	}
	return key
}

// e2bPool makes a pool of sandboxes, with a runtime in them where a story has use for it.
func e2bPool(t *testing.T, ns, name string, replicas int32) {
	t.Helper()
	envd := ""
	if name == "lifecycle" || name == "runtime" {
		envd = `"initContainers":[{"name":"runtime","image":"envd:1","restartPolicy":"Always"}],`
	}
	set := builders.Set(name, replicas)
	set.Spec.Template = &runtime.RawExtension{Raw: []byte(
		`{"spec":{` + envd + `"containers":[{"name":"main","image":"busybox:1","resources":{"requests":{"cpu":"1m","memory":"1Mi"}}}]}}`)}
	if _, err := admin(t).SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
