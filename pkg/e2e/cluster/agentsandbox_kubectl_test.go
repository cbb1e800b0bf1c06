// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// agentManifests are what users of agent-sandbox apply.
const agentManifests = `
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata: {name: python}
spec: {podTemplate: {spec: {containers: [{name: main, image: busybox:1}]}}}
---
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: pool}
spec: {replicas: 2, sandboxTemplateRef: {name: python}}
---
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: {name: alone}
spec: {podTemplate: {spec: {containers: [{name: main, image: busybox:1}]}}}
`

const agentClaimManifest = `
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxClaim
metadata: {name: claim}
spec: {warmPoolRef: {name: pool}}
`

// TestAgentSandboxKubectl applies, waits for, prints and scales with kubectl.
func TestAgentSandboxKubectl(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	for range 2 { // the second time there is nothing to change
		kubectl(t, ns, agentManifests, "apply", "--validate=strict", "-f", "-")
	}
	await(t, ns, "--for=jsonpath={.status.readyReplicas}=2", "sandboxwarmpools.extensions.agents.x-k8s.io/pool")
	kubectl(t, ns, agentClaimManifest, "apply", "--server-side", "-f", "-")
	if again := kubectl(t, ns, agentClaimManifest, "apply", "--server-side", "-f", "-"); !strings.Contains(again, "claim serverside-applied") {
		t.Errorf("applied again: %s", again)
	}
	await(t, ns, "--for=condition=Ready", "sandboxclaims.extensions.agents.x-k8s.io/claim")
	await(t, ns, "--for=condition=Ready", "sandboxes.agents.x-k8s.io/alone")

	for resource, want := range map[string][]string{
		"sandboxclaims.extensions.agents.x-k8s.io":    {"NAME", "READY", "SANDBOX", "REASON", "AGE"},
		"sandboxwarmpools.extensions.agents.x-k8s.io": {"NAME", "READY", "DESIRED", "AGE"},
		"swp":                       {"NAME", "READY", "DESIRED", "AGE"},
		"sandboxes.agents.x-k8s.io": {"NAME", "READY", "REASON", "AGE"},
		"sandboxtemplates.extensions.agents.x-k8s.io": nil,
	} {
		header, _, _ := strings.Cut(kubectl(t, ns, "", "get", resource), "\n")
		if got := strings.Fields(header); want != nil && !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("get %s prints %q, want %q", resource, got, want)
		}
	}
	for path, want := range map[string]string{
		"sandboxclaims.spec.warmPoolRef --api-version=extensions.agents.x-k8s.io/v1beta1":               "name",
		"sandboxtemplates.spec.envVarsInjectionPolicy --api-version=extensions.agents.x-k8s.io/v1beta1": "Disallowed",
		"sandboxwarmpools.spec.updateStrategy --api-version=extensions.agents.x-k8s.io/v1beta1":         "type",
		"sandboxes.spec.operatingMode --api-version=agents.x-k8s.io/v1beta1":                            "Suspended",
	} {
		if out := kubectl(t, ns, "", append([]string{"explain"}, strings.Fields(path)...)...); !strings.Contains(out, want) {
			t.Errorf("explain %s does not say %q:\n%s", path, want, out)
		}
	}
	kubectl(t, ns, "", "scale", "swp", "pool", "--current-replicas=2", "--replicas=3")
	c.awaitAgentPool(t, ns, 3)
	kubectl(t, ns, "", "patch", "sandboxclaims.extensions.agents.x-k8s.io", "claim", "--type=merge", "-p", `{"metadata": {"labels": {"team": "a"}}}`)
	kubectl(t, ns, "", "delete", "sandboxclaims.extensions.agents.x-k8s.io", "-l", "team=a", "--timeout="+expect.Patience.String())
	kubectl(t, ns, agentManifests, "delete", "-f", "-", "--timeout="+expect.Patience.String())
}

// TestAgentSandboxDiscovery: names, short names, verbs and versions are those that clients
// of agent-sandbox look for.
func TestAgentSandboxDiscovery(t *testing.T) {
	t.Parallel()
	c := admin(t)
	want := map[string]map[string][]string{
		"extensions.agents.x-k8s.io/v1beta1": {
			"sandboxclaims": {"sandboxclaim"}, "sandboxtemplates": {"sandboxtemplate"}, "sandboxwarmpools": {"swp"},
			"sandboxclaims/status": nil, "sandboxwarmpools/status": nil, "sandboxwarmpools/scale": nil,
		},
		"agents.x-k8s.io/v1beta1":  {"sandboxes": {"sandbox"}, "sandboxes/status": nil},
		"agents.x-k8s.io/v1alpha1": {"sandboxes": {"sandbox"}, "sandboxes/status": nil, "sandboxes/scale": nil},
	}
	for gv, resources := range want {
		list, err := c.kube.Discovery().ServerResourcesForGroupVersion(gv)
		if err != nil {
			t.Fatal(err)
		}
		for resource, shortNames := range resources {
			i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
			if i < 0 {
				t.Errorf("%s has no %s", gv, resource)
				continue
			}
			found := list.APIResources[i]
			if !found.Namespaced || !slices.Equal(found.ShortNames, shortNames) {
				t.Errorf("%s of %s is %+v", resource, gv, found)
			}
			if !strings.Contains(resource, "/") && !slices.Contains(found.Verbs, "deletecollection") {
				t.Errorf("%s of %s has the verbs %v", resource, gv, found.Verbs)
			}
		}
	}
	groups, err := c.kube.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups.Groups {
		if (group.Name == v1alpha1.AgentsGroup || group.Name == v1alpha1.ExtensionsGroup) && group.PreferredVersion.Version != "v1beta1" {
			t.Errorf("of %s clients prefer %s", group.Name, group.PreferredVersion.Version)
		}
	}
}

// TestAgentSandboxMetadataOnly lists and watches as garbage collectors and GitOps tools do.
func TestAgentSandboxMetadataOnly(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.makeAgent(t, agentTemplates, ns, newAgentTemplate())
	content, err := c.kube.Discovery().RESTClient().Get().AbsPath("/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/"+ns+"/sandboxtemplates").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(content, &list); err != nil || list.Kind != "PartialObjectMetadataList" || len(list.Items) != 1 {
		t.Errorf("%v: %s", err, content)
	}
}

// TestAgentSandboxDeleteCollection deletes claims of one family by their label, and leaves
// those of the other.
func TestAgentSandboxDeleteCollection(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	c.fillAgentPool(t, ns, 3)
	for _, name := range []string{"one", "two"} {
		claim := newAgentClaim(name)
		claim.SetLabels(map[string]string{"run": "first"})
		c.agentBound(t, ns, claim)
	}
	kept := c.agentBound(t, ns, newAgentClaim("kept"))
	err := c.agent(t, agentClaims, ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "run=first"})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitAgentPool(t, ns, 3)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := c.agent(t, agentSandboxes, ns).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.AgentLabelClaimUID})
		if err == nil && (len(list.Items) != 1 || list.Items[0].GetName() != text(kept, "status", "sandbox", "name")) {
			err = fmt.Errorf("%d claimed sandboxes are left", len(list.Items))
		}
		return err
	})
}
