// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/controllers/callers"
	gatewayapp "github.com/sandlot-io/sandlot/pkg/gateway/app"
)

const (
	// e2b is the component that serves the API of E2B.
	e2b = "e2b"
	// gatewayName is what its objects are called.
	gatewayName = "sandlot-gateway"
	// gatewaySecret is the user's.
	gatewaySecret = "sandlot-gateway-tls"
	// keysNamespace has the API keys.
	keysNamespace = "sandlot-e2b-keys"
	// teamRole is what users of the API may do in the namespace of their team.
	teamRole = "sandlot-e2b-team"
)

// eachWithE2B runs a test on every overlay with the component.
func eachWithE2B(t *testing.T, test func(t *testing.T, overlay string, objects manifests)) {
	for _, overlay := range overlays {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			test(t, overlay, renderWith(t, overlay, e2b))
		})
	}
}

// TestE2BIsAChoice: what opens a cluster to users without an account in it is not there by
// itself.
func TestE2BIsAChoice(t *testing.T) {
	for _, overlay := range overlays {
		for _, object := range render(t, overlay) {
			if strings.Contains(object.GetName(), gatewayName) || strings.Contains(object.GetName()+object.GetNamespace(), e2b) {
				t.Errorf("%s has %T %s", overlay, object, object.GetName())
			}
		}
	}
}

func TestE2BReferences(t *testing.T) {
	eachWithE2B(t, func(t *testing.T, overlay string, objects manifests) {
		checkReferences(t, objects, append(slices.Clone(madeLater[overlay]), gatewaySecret))
		w := workloads(objects)[gatewayName]
		if w.replicas < 2 {
			t.Errorf("%d replicas", w.replicas)
		}
		for _, env := range w.template.Spec.Containers[0].Env {
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
				t.Errorf("variable %s is a secret", env.Name)
			}
		}
	})
}

// TestE2BAccess: the gateway may find sandboxes and name API keys, and impersonates no other
// user. Each team lets it act for itself.
func TestE2BAccess(t *testing.T) {
	eachWithE2B(t, func(t *testing.T, _ string, objects manifests) {
		want := []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"sandboxes"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"sandboxclaims"}, Verbs: []string{"get"}},
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"userextras/" + v1alpha1.AnnotationE2BKeyID}, Verbs: []string{"impersonate"}},
		}
		if diff := cmp.Diff(want, get[*rbacv1.ClusterRole](objects, gatewayName).Rules); diff != "" {
			t.Errorf("what the gateway may do everywhere: -want +got\n%s", diff)
		}
		role := get[*rbacv1.Role](objects, gatewayName)
		if role == nil || role.Namespace != keysNamespace || get[*corev1.Namespace](objects, keysNamespace) == nil {
			t.Fatalf("the role for keys is %v", role)
		}
		want = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "delete"}}}
		if diff := cmp.Diff(want, role.Rules); diff != "" {
			t.Errorf("what it may do with keys: -want +got\n%s", diff)
		}
		for _, binding := range of[*rbacv1.RoleBinding](objects) {
			if binding.RoleRef.Name == gatewayName && binding.Namespace != keysNamespace {
				t.Errorf("RoleBinding %s is in namespace %s", binding.Name, binding.Namespace)
			}
		}
		checkBoundTo(t, objects, gatewayName, gatewayName)
		checkBoundTo(t, objects, teamRole) // by each team, where it is
	})
}

// checkBoundTo: a role is bound to these service accounts of ours and to no others.
func checkBoundTo(t *testing.T, objects manifests, role string, accounts ...string) {
	t.Helper()
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if ref.Name != role {
			return
		}
		for _, subject := range subjects {
			if !slices.Contains(accounts, subject.Name) {
				t.Errorf("%s gives %s to %s", name, role, subject.Name)
			}
		}
	}
	for _, b := range of[*rbacv1.RoleBinding](objects) {
		check(b.Name, b.RoleRef, b.Subjects)
	}
	for _, b := range of[*rbacv1.ClusterRoleBinding](objects) {
		check(b.Name, b.RoleRef, b.Subjects)
	}
}

// TestE2BTeam: the component of a team gives the rights to the user as whom the gateway acts
// in that namespace, and in no other, and lets the gateway act as that user and read its pods.
func TestE2BTeam(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	to, err := filepath.Rel(own, here)
	if err != nil {
		t.Fatal(err)
	}
	kustomization := fmt.Sprintf("namespace: team-a\ncomponents: [%s/components/e2b-team]\n", to)
	if err := os.WriteFile(filepath.Join(own, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := render(t, own)
	account := get[*corev1.ServiceAccount](objects, v1alpha1.E2BServiceAccount)
	if account == nil || account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
		t.Fatalf("the service account is %v", account)
	}
	if user := "system:serviceaccount:" + account.Namespace + ":" + account.Name; user != v1alpha1.E2BUser("team-a") {
		t.Errorf("the user is %s", user)
	}
	actsAs := get[*rbacv1.RoleBinding](objects, gatewayName)
	if gateway := (rbacv1.Subject{Kind: "ServiceAccount", Name: gatewayName, Namespace: namespace}); actsAs == nil ||
		actsAs.Namespace != "team-a" || !cmp.Equal([]rbacv1.Subject{gateway}, actsAs.Subjects) || actsAs.RoleRef.Kind != "Role" {
		t.Fatalf("the binding of the gateway is %v", actsAs)
	}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{v1alpha1.E2BServiceAccount}, Verbs: []string{"impersonate"}},
	}
	if role := get[*rbacv1.Role](objects, actsAs.RoleRef.Name); role == nil || role.Namespace != "team-a" || !cmp.Equal(rules, role.Rules) {
		t.Errorf("what the gateway may do for the team: %v", role)
	}
	binding := get[*rbacv1.RoleBinding](objects, v1alpha1.E2BServiceAccount)
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: "team-a"}}
	if binding == nil || binding.Namespace != "team-a" || !cmp.Equal(want, binding.Subjects) {
		t.Fatalf("the binding is %v", binding)
	}
	for _, overlay := range []manifests{renderWith(t, "default", e2b), render(t, "local")} {
		role := get[*rbacv1.ClusterRole](overlay, binding.RoleRef.Name)
		if role == nil || binding.RoleRef.Kind != "ClusterRole" {
			t.Fatalf("there is no %s %s", binding.RoleRef.Kind, binding.RoleRef.Name)
		}
		for resource, want := range map[string][]string{
			"sandboxclaims":               {"create", "delete", "get", "list", "patch", "watch"},
			"sandboxclaims/release":       {"create"},
			"sandboxclaims/runtimeaccess": {"create"},
			"sandboxes":                   {"delete", "get", "list", "patch"},
			"sandboxsets":                 {"get", "list"},
			"sandboxtemplates":            {"get", "list"},
		} {
			if got := verbs(role.Rules, v1alpha1.GroupName, resource); !slices.Equal(got, want) {
				t.Errorf("a team may %v %s, want %v", got, resource, want)
			}
		}
		for label := range role.Labels {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
				t.Errorf("%s has the label %s", role.Name, label)
			}
		}
	}
}

// TestSandboxesOfATeam: a sandbox in the namespace of a team is reached by Sandlot's programs
// and by no other pod, by the component of the team alone, and by what the controllers let in
// for templates. One with an agent-runtime is reached by the gateway in namespaces of teams only.
func TestSandboxesOfATeam(t *testing.T) {
	const egress, ingress = networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress
	n, who := newNetwork(renderWith(t, "default", e2b))
	ofTeam := renderUser(t, map[string]string{"top": "namespace: team\ncomponents: [%s/components/e2b-team]\n"})
	byControllers := func(programs ...callers.Program) *networkingv1.NetworkPolicy {
		policy := &networkingv1.NetworkPolicy{}
		policy.Namespace = "team"
		policy.Spec.PolicyTypes = []networkingv1.PolicyType{ingress}
		policy.Spec.Ingress = callers.Callers{Namespace: namespace}.Ingress(programs...)
		return policy
	}
	forRuntimes := byControllers(callers.APIServer)
	for by, policies := range map[string][]*networkingv1.NetworkPolicy{
		"the component":             of[*networkingv1.NetworkPolicy](ofTeam),
		"the controllers":           {byControllers(callers.APIServer, callers.Gateway)},
		"the component and runtime": append(of[*networkingv1.NetworkPolicy](ofTeam), forRuntimes),
		"the runtime":               {forRuntimes},
	} {
		n.policies = policies
		for from, want := range map[string]bool{
			apiServer: true, gatewayName: by != "the runtime", "a router": true,
			managers: false, etcdName: false, "sandlot-backup": false, "another pod": false, "a pretender": false, "a sandbox": false, "Prometheus": false,
		} {
			if got := n.passes(t, ingress, who["a sandbox"], who[from], who["a sandbox"], corev1.ProtocolTCP, 49983); got != want {
				t.Errorf("%s: from %s: %v", by, from, got)
			}
		}
		if !n.passes(t, egress, who["a sandbox"], who["a user"], who["a user"], corev1.ProtocolTCP, 443) {
			t.Errorf("%s: nothing is let out", by)
		}
	}
	n.policies = of[*networkingv1.NetworkPolicy](ofTeam)
	if !n.passes(t, ingress, who["another pod"], who["Prometheus"], who["another pod"], corev1.ProtocolTCP, 80) {
		t.Error("the component is about pods that are no sandboxes")
	}
}

// TestE2BArguments: the gateway listens where probes, Service and policies look for it, over
// TLS, and is given nothing that is for tests.
func TestE2BArguments(t *testing.T) {
	eachWithE2B(t, func(t *testing.T, _ string, objects manifests) {
		w := workloads(objects)[gatewayName]
		values := parse(t, gatewayapp.NewCommand(), args(t, objects, w))
		checkFiles(t, w, values, "tls-cert-file", "tls-private-key-file")
		if want := fmt.Sprint(containerPort(t, w, "https")); values["secure-port"] != want {
			t.Errorf("--secure-port=%s, but the port https is %s", values["secure-port"], want)
		}
		for flag, port := range map[string]string{"metrics-bind-address": "metrics", "health-probe-bind-address": "health"} {
			if want := fmt.Sprintf(":%d", containerPort(t, w, port)); values[flag] != want {
				t.Errorf("--%s=%s, but the port %s is %s", flag, values[flag], port, want)
			}
		}
		if got := values["keys-namespace"]; got != keysNamespace {
			t.Errorf("--keys-namespace=%s, but the role is for %s", got, keysNamespace)
		}
		for _, flag := range []string{"insecure-port", "allow-loopback", "kubeconfig"} {
			if got, ok := values[flag]; ok {
				t.Errorf("--%s=%s", flag, got)
			}
		}
	})
}

// TestE2BWaysIn: the examples of what may stand before the gateway lead to its Service, and
// the certificate is where the gateway looks for it.
func TestE2BWaysIn(t *testing.T) {
	objects := renderWith(t, "default", e2b)
	service := get[*corev1.Service](objects, gatewayName)
	folder := filepath.Join("..", "example", e2b, "ways-in")
	found := map[string]map[string]any{}
	for _, file := range []string{"certificate.yaml", "gateway.yaml", "ingress.yaml"} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var object map[string]any
			if err := yaml.UnmarshalStrict(document, &object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if metadata := object["metadata"].(map[string]any); metadata["namespace"] != service.Namespace {
				t.Errorf("%s: %v is in namespace %v", file, object["kind"], metadata["namespace"])
			}
			found[object["kind"].(string)] = object["spec"].(map[string]any)
		}
	}
	if got := found["Certificate"]["secretName"]; got != gatewaySecret {
		t.Errorf("the certificate is put into Secret %v", got)
	}
	backend := found["HTTPRoute"]["rules"].([]any)[0].(map[string]any)["backendRefs"].([]any)[0].(map[string]any)
	if backend["name"] != service.Name || asInt64(backend["port"]) != int64(service.Spec.Ports[0].Port) {
		t.Errorf("the route leads to %v", backend)
	}
	if target := found["BackendTLSPolicy"]["targetRefs"].([]any)[0].(map[string]any); target["name"] != service.Name {
		t.Errorf("the policy is for %v", target)
	}
	text, err := os.ReadFile(filepath.Join(folder, "ingress.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var ingress networkingv1.Ingress
	if err := yaml.UnmarshalStrict(text, &ingress); err != nil {
		t.Fatal(err)
	}
	to := ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service
	if to.Name != service.Name || to.Port.Name != service.Spec.Ports[0].Name || ingress.Spec.TLS[0].SecretName != gatewaySecret {
		t.Errorf("the Ingress is %v", ingress.Spec)
	}
}

// TestE2BFlags: the table of flags in docs/e2b.md has them all, with their defaults.
func TestE2BFlags(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "e2b.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| flag | default | |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(row, "|")
		names, values := strings.Split(cells[1], ","), strings.Split(cells[2], ",")
		for i, name := range names {
			if value := strings.TrimSpace(values[min(i, len(values)-1)]); strings.HasPrefix(name, " `--") {
				documented[strings.Trim(name, " `-")] = value
			}
		}
	}
	ours := 0
	gatewayapp.NewCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(commonFlags, f.Name) {
			return
		}
		ours++
		value, ok := documented[f.Name]
		if !ok {
			t.Errorf("--%s is not documented", f.Name)
		}
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != value {
			t.Errorf("--%s is %s by default, not %q", f.Name, f.DefValue, value)
		}
		delete(documented, f.Name)
	})
	if ours == 0 || len(documented) > 0 {
		t.Errorf("there are %d flags; documented are also %v", ours, documented)
	}
}

// commonFlags are those of logs, which all programs have.
var commonFlags = []string{"log-flush-frequency", "log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size", "log-text-split-stream", "logging-format", "v", "vmodule"}
