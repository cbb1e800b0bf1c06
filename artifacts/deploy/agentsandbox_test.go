// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/manager"
)

// agentSandbox is the component that serves the API of agent-sandbox.
const agentSandbox = "agent-sandbox"

// agentSandboxVersions are the group-versions that it registers, the preferred version
// of each group first.
var agentSandboxVersions = map[string][]string{
	v1alpha1.AgentsGroup:     {"v1beta1", "v1alpha1"},
	v1alpha1.ExtensionsGroup: {"v1beta1", "v1alpha1"},
}

// agentSandboxAPIServices are the names of the APIServices, sorted.
func agentSandboxAPIServices() []string {
	var names []string
	for group, versions := range agentSandboxVersions {
		for _, version := range versions {
			names = append(names, version+"."+group)
		}
	}
	slices.Sort(names)
	return names
}

// renderWith renders an overlay of a user's own, which adds a component to one of ours.
func renderWith(t *testing.T, overlay, component string) manifests {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	to, err := filepath.Rel(own, here)
	if err != nil {
		t.Fatal(err)
	}
	kustomization := fmt.Sprintf("resources: [%[1]s/%[2]s]\ncomponents: [%[1]s/components/%[3]s]\n", to, overlay, component)
	if err := os.WriteFile(filepath.Join(own, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	return render(t, own)
}

// eachWithAgentSandbox runs a test on every overlay with the component, and on the one of
// the local control plane, which has it.
func eachWithAgentSandbox(t *testing.T, test func(t *testing.T, objects manifests)) {
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			test(t, renderWith(t, overlay, agentSandbox))
		})
	}
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, render(t, "local"))
	})
}

// apiServices by name.
func apiServices(objects manifests) map[string]*unstructured.Unstructured {
	found := map[string]*unstructured.Unstructured{}
	for _, object := range of[*unstructured.Unstructured](objects) {
		if object.GetKind() == "APIService" {
			found[object.GetName()] = object
		}
	}
	return found
}

// TestAgentSandboxIsAChoice: another project may own these groups, so no overlay that
// people apply takes them over, or lets the controllers write to their APIServices.
func TestAgentSandboxIsAChoice(t *testing.T) {
	each(t, func(t *testing.T, objects manifests) {
		if found := apiServices(objects); len(found) != 1 {
			t.Errorf("%d APIServices", len(found))
		}
		for name, rules := range rulesByRole(objects) {
			for _, rule := range rules {
				for _, value := range slices.Concat(rule.APIGroups, rule.ResourceNames) {
					if strings.HasSuffix(value, v1alpha1.AgentsGroup) {
						t.Errorf("%s names %s", name, value)
					}
				}
			}
		}
	})
}

// TestAgentSandboxAPIServices: all group-versions lead to our Service, and get its CA: the
// controllers know them by a flag, and may write to them.
func TestAgentSandboxAPIServices(t *testing.T) {
	eachWithAgentSandbox(t, func(t *testing.T, objects manifests) {
		found := apiServices(objects)
		for group, versions := range agentSandboxVersions {
			priority := int64(1 << 30)
			for _, version := range versions {
				api := found[version+"."+group]
				if api == nil {
					t.Fatalf("no APIService %s.%s", version, group)
				}
				checkAPIService(t, objects, api, group, version)
				spec := api.Object["spec"].(map[string]any)
				if now := asInt64(spec["versionPriority"]).(int64); now >= priority {
					t.Errorf("%s is not behind the version before it: %d", version, now)
				} else {
					priority = now
				}
			}
		}
		ours := certificates.NewOptions().APIServices
		want := slices.Sorted(slices.Values(append(agentSandboxAPIServices(), ours...)))
		var writable []string
		for _, rules := range rulesByRole(objects) {
			for _, rule := range rules {
				if slices.Contains(rule.Resources, "apiservices") && slices.Contains(rule.Verbs, "patch") {
					writable = append(writable, rule.ResourceNames...)
				}
			}
		}
		slices.Sort(writable)
		if !slices.Equal(writable, want) {
			t.Errorf("written can be the APIServices %q, want %q", writable, want)
		}
		w, ok := workloads(objects)["sandlot-controller-manager"]
		if !ok {
			return // local
		}
		values := parse(t, manager.NewCommand(), args(t, objects, w))
		told := slices.Sorted(strings.SplitSeq(values["certificates-apiservice"], ","))
		if !slices.Equal(told, want) {
			t.Errorf("the controllers are told of %q, want %q", told, want)
		}
	})
}

// checkAPIService: the aggregator finds the server by the names that its certificate has.
func checkAPIService(t *testing.T, objects manifests, api *unstructured.Unstructured, group, version string) {
	t.Helper()
	spec := api.Object["spec"].(map[string]any)
	if spec["group"] != group || spec["version"] != version {
		t.Errorf("%s is for %v/%v", api.GetName(), spec["group"], spec["version"])
	}
	for _, field := range []string{"caBundle", "insecureSkipTLSVerify"} {
		if value, ok := spec[field]; ok {
			t.Errorf("%s: %s is set: %v", api.GetName(), field, value)
		}
	}
	reference := spec["service"].(map[string]any)
	service := get[*corev1.Service](objects, certificates.NewOptions().APIServerService)
	if service == nil || reference["name"] != service.Name || reference["namespace"] != namespace {
		t.Errorf("%s is served by %v", api.GetName(), reference)
	}
	if api.GetLabels()["app.kubernetes.io/part-of"] != "sandlot" {
		t.Errorf("%s has the labels %v", api.GetName(), api.GetLabels())
	}
}

// TestAgentSandboxRoles: users have the same rights in these groups as in ours, by roles
// that extend those of every cluster, and none that is bound to anyone.
func TestAgentSandboxRoles(t *testing.T) {
	eachWithAgentSandbox(t, func(t *testing.T, objects manifests) {
		for _, role := range []string{"view", "edit", "admin"} {
			ours, theirs := get[*rbacv1.ClusterRole](objects, "sandlot-"+role), get[*rbacv1.ClusterRole](objects, "sandlot-agent-sandbox-"+role)
			if ours == nil || theirs == nil {
				t.Fatalf("no ClusterRole of %s", role)
			}
			label := "rbac.authorization.k8s.io/aggregate-to-" + role
			if theirs.Labels[label] != "true" {
				t.Errorf("%s is not aggregated: %v", theirs.Name, theirs.Labels)
			}
			for resource, theirName := range map[string]string{
				"sandboxclaims": "sandboxclaims", "sandboxtemplates": "sandboxtemplates",
				"sandboxsets": "sandboxwarmpools", "sandboxes": "sandboxes",
			} {
				for _, subresource := range []string{"", "/scale", "/status", "/finalizers"} {
					group := v1alpha1.ExtensionsGroup
					if resource == "sandboxes" {
						group = v1alpha1.AgentsGroup
					}
					a := verbs(ours.Rules, v1alpha1.GroupName, resource+subresource)
					if resource+subresource == "sandboxes/scale" { // which only v1alpha1 of the other API has
						a = verbs(ours.Rules, v1alpha1.GroupName, "sandboxsets/scale")
						if role == "view" {
							a = nil // it is a part of what only the reader sees
						}
					}
					b := verbs(theirs.Rules, group, theirName+subresource)
					if !slices.Equal(a, b) {
						t.Errorf("%s: %v on %s%s, %v on %s%s", role, a, resource, subresource, b, theirName, subresource)
					}
				}
			}
		}
		for _, binding := range of[*rbacv1.ClusterRoleBinding](objects) {
			if strings.HasPrefix(binding.RoleRef.Name, "sandlot-agent-sandbox") {
				t.Errorf("%s is bound", binding.RoleRef.Name)
			}
		}
		for name, rules := range rulesByRole(objects) {
			for _, rule := range rules {
				if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
					t.Errorf("%s has a wildcard: %v", name, rule)
				}
			}
		}
		checkBindings(t, objects)
	})
}

// verbs that rules allow on a resource, sorted.
func verbs(rules []rbacv1.PolicyRule, group, resource string) []string {
	var found []string
	for _, rule := range rules {
		if slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) {
			found = append(found, rule.Verbs...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestAgentSandboxOwners: with OwnerReferencesPermissionEnforcement, the controllers may
// make objects that belong to those of either group.
func TestAgentSandboxOwners(t *testing.T) {
	eachWithAgentSandbox(t, func(t *testing.T, objects manifests) {
		var rules []rbacv1.PolicyRule
		for _, binding := range of[*rbacv1.ClusterRoleBinding](objects) {
			role := get[*rbacv1.ClusterRole](objects, binding.RoleRef.Name)
			if binding.Subjects[0].Name == "sandlot-controller-manager" && role != nil { // or one that every cluster has
				rules = append(rules, role.Rules...)
			}
		}
		for group, resources := range map[string][]string{
			v1alpha1.AgentsGroup:     {"sandboxes"},
			v1alpha1.ExtensionsGroup: {"sandboxclaims", "sandboxwarmpools"},
		} {
			for _, resource := range resources {
				if got := verbs(rules, group, resource+"/finalizers"); !slices.Equal(got, []string{"update"}) {
					t.Errorf("the controllers may %v %s/finalizers of %s", got, resource, group)
				}
			}
		}
	})
}

// TestAgentSandboxClaimsWait where the other claims do, and not among all requests.
func TestAgentSandboxClaimsWait(t *testing.T) {
	eachWithAgentSandbox(t, func(t *testing.T, objects manifests) {
		ours, theirs := get[*flowcontrolv1.FlowSchema](objects, "sandlot-claims"), get[*flowcontrolv1.FlowSchema](objects, "sandlot-agent-sandbox-claims")
		if ours == nil || theirs == nil {
			t.Fatal("there are not two flow schemas of claims")
		}
		want := ours.Spec.DeepCopy()
		want.Rules[0].ResourceRules[0].APIGroups = []string{v1alpha1.ExtensionsGroup}
		if diff := cmp.Diff(*want, theirs.Spec); diff != "" {
			t.Errorf("claims of this API are handled otherwise: -want +got\n%s", diff)
		}
	})
}
