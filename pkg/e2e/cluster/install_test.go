// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// overlays are what people apply, in artifacts/deploy.
var overlays = []string{"default", "single", "external-etcd"}

func overlayPath(t *testing.T, overlay string) string {
	t.Helper()
	root, err := program.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "artifacts", "deploy", overlay)
}

// TestInstallIsValid applies every overlay as a dry run, which validates all of it,
// and warns where a pod would break the rules of its namespace.
func TestInstallIsValid(t *testing.T) {
	t.Parallel()
	for _, overlay := range overlays {
		for way, args := range map[string][]string{
			"server-side": {"--server-side", "--force-conflicts"},
			"client-side": nil,
		} {
			t.Run(overlay+"/"+way, func(t *testing.T) {
				t.Parallel()
				args = append([]string{"apply", "--kustomize", overlayPath(t, overlay), "--dry-run=server", "--validate=strict", "--output=json"}, args...)
				out, errOut, err := plane.Kubectl(t.Context(), "", nil, args...)
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(errOut) {
					// What was applied server-side before is taken over, which is as well.
					if !strings.Contains(line, "missing the kubectl.kubernetes.io/last-applied-configuration annotation") {
						t.Errorf("kubectl complains: %s", line)
					}
				}
				// The controllers have put their CA there; applying leaves it alone.
				api := findObject(t, out, "APIService")
				if bundle, _, _ := unstructured.NestedString(api.Object, "spec", "caBundle"); bundle == "" {
					t.Error("applying takes the caBundle away from the APIService")
				}
			})
		}
	}
}

func findObject(t *testing.T, list, kind string) unstructured.Unstructured {
	t.Helper()
	var objects unstructured.UnstructuredList
	if err := objects.UnmarshalJSON([]byte(list)); err != nil {
		t.Fatal(err)
	}
	for _, object := range objects.Items {
		if object.GetKind() == kind {
			return object
		}
	}
	t.Fatalf("there is no %s", kind)
	return unstructured.Unstructured{}
}

// TestPodsAreAdmitted makes a pod of each workload, as a dry run: the namespace
// lets in no pod that could do more than ours need.
func TestPodsAreAdmitted(t *testing.T) {
	t.Parallel()
	kube := admin(t).kube
	create := func(name string, template corev1.PodTemplateSpec) error {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Name, pod.Namespace = name, controlplane.Namespace
		_, err := kube.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, overlay := range overlays {
		for name, template := range podTemplates(t, overlay) {
			if _, err := kube.CoreV1().ServiceAccounts(controlplane.Namespace).Get(t.Context(), template.Spec.ServiceAccountName, metav1.GetOptions{}); apierrors.IsNotFound(err) {
				// The processes of this test have no need of it.
				template.Spec.ServiceAccountName = "default"
			}
			if err := create(name, template); err != nil {
				t.Errorf("%s: %s: %v", overlay, name, err)
			}
			spoilt := *template.DeepCopy()
			spoilt.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
			if err := create(name, spoilt); !apierrors.IsForbidden(err) {
				t.Errorf("%s: %s with more privileges: got %v, want it to be forbidden", overlay, name, err)
			}
		}
	}
}

// podTemplates are those of an overlay, by the name of their workload.
func podTemplates(t *testing.T, overlay string) map[string]corev1.PodTemplateSpec {
	t.Helper()
	out, _, err := plane.Kubectl(t.Context(), "", nil, "kustomize", overlayPath(t, overlay))
	if err != nil {
		t.Fatal(err)
	}
	templates := map[string]corev1.PodTemplateSpec{}
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	for document := range strings.SplitSeq(out, "\n---\n") {
		var object unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		switch object.GetKind() {
		case "Deployment":
			var deployment appsv1.Deployment
			if err := convert(object.Object, &deployment); err != nil {
				t.Fatal(err)
			}
			templates[deployment.Name] = deployment.Spec.Template
		case "StatefulSet":
			var set appsv1.StatefulSet
			if err := convert(object.Object, &set); err != nil {
				t.Fatal(err)
			}
			template := set.Spec.Template
			for _, claim := range set.Spec.VolumeClaimTemplates {
				template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + set.Name + "-0"},
				}})
			}
			templates[set.Name] = template
		}
	}
	if len(templates) < 2 {
		t.Fatalf("%s has the workloads %v", overlay, templates)
	}
	return templates
}

// TestAccess asks the cluster who may do what by the roles of the install.
func TestAccess(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	subjects := map[string]string{
		"apiserver":          "system:serviceaccount:" + controlplane.Namespace + ":sandlot-apiserver",
		"controller-manager": "system:serviceaccount:" + controlplane.Namespace + ":sandlot-controller-manager",
	}
	for _, role := range []string{"view", "edit", "admin", "sandlot-view", "sandlot-edit", "sandlot-admin", "sandlot-claimer", "sandlot-runtime-user", "sandlot-sandbox-user", "sandlot-sandbox-reader"} {
		subjects[role] = uniqueUser(t, role)
		grant(t, ns, role, subjects[role])
	}
	const group = "agents.kruise.io"
	own := controlplane.Namespace
	for _, tc := range []struct {
		verb, group, resource, subresource, namespace, name string
		// who may; none of the other subjects
		who string
	}{
		{"list", group, "sandboxes", "", ns, "", "controller-manager edit admin sandlot-edit sandlot-admin sandlot-claimer sandlot-sandbox-reader"},
		{"list", group, "sandboxclaims", "", ns, "", "controller-manager view edit admin sandlot-view sandlot-edit sandlot-admin sandlot-claimer"},
		{"list", group, "sandboxsets", "", ns, "", "controller-manager view edit admin sandlot-view sandlot-edit sandlot-admin sandlot-claimer"},
		{"watch", group, "sandboxsets", "", ns, "", "controller-manager view edit admin sandlot-view sandlot-edit sandlot-admin sandlot-claimer"},
		{"get", group, "sandboxtemplates", "", ns, "", "controller-manager view edit admin sandlot-view sandlot-edit sandlot-admin"},
		{"list", group, "sandboxtemplates", "", ns, "", "controller-manager view edit admin sandlot-view sandlot-edit sandlot-admin"},
		{"create", group, "sandboxclaims", "", ns, "", "edit admin sandlot-edit sandlot-admin sandlot-claimer"},
		{"patch", group, "sandboxclaims", "", ns, "", "edit admin sandlot-edit sandlot-admin"},
		{"delete", group, "sandboxclaims", "", ns, "", "controller-manager edit admin sandlot-edit sandlot-admin sandlot-claimer"},
		{"create", group, "sandboxclaims", "release", ns, "", "edit admin sandlot-edit sandlot-admin sandlot-claimer"},
		{"create", group, "sandboxclaims", "runtimeaccess", ns, "", "edit admin sandlot-edit sandlot-admin sandlot-runtime-user"},
		{"get", group, "sandboxes", "proxy", ns, "", "edit admin sandlot-edit sandlot-admin sandlot-sandbox-user"},
		{"deletecollection", group, "sandboxclaims", "", ns, "", "edit admin sandlot-edit sandlot-admin"},
		{"create", group, "sandboxes", "", ns, "", "controller-manager edit admin sandlot-edit sandlot-admin"},
		{"update", group, "sandboxsets", "scale", ns, "", "edit admin sandlot-edit sandlot-admin"},
		{"create", group, "sandboxsets", "", ns, "", "edit admin sandlot-edit sandlot-admin"},
		{"patch", group, "sandboxes", "status", ns, "", "controller-manager"},
		{"patch", group, "sandboxclaims", "status", ns, "", "controller-manager"},
		{"update", group, "sandboxclaims", "status", ns, "", ""},
		{"update", group, "sandboxes", "finalizers", ns, "", "controller-manager admin sandlot-admin"},

		// The API server with components/dry-runs, and only as that: see TestOnlyDryRuns.
		{"create", "", "pods", "", ns, "", "apiserver controller-manager edit admin"},
		{"create", "", "pods", "exec", ns, "", "edit admin sandlot-sandbox-user"},
		{"get", "", "persistentvolumes", "", "", "", "apiserver"},
		{"get", "", "persistentvolumeclaims", "", ns, "", "apiserver controller-manager view edit admin"},
		{"list", "", "persistentvolumeclaims", "", ns, "", "view edit admin"},
		{"list", "", "persistentvolumes", "", "", "", ""},
		{"get", "", "secrets", "", ns, "", "edit admin"},
		{"get", "", "secrets", "", own, "sandlot-signer", "controller-manager"},
		{"watch", "", "secrets", "", own, "sandlot-signer", "controller-manager"},
		{"get", "", "secrets", "", own, "a-users", ""},
		{"list", "", "secrets", "", own, "", ""},
		{"update", "", "secrets", "", own, "a-users", ""},
		{"create", "", "secrets", "", own, "", "controller-manager"},
		{"get", "", "configmaps", "", own, "sandbox-injection-config", "controller-manager"},
		{"update", "", "configmaps", "", own, "sandbox-injection-config", ""},
		{"list", "", "configmaps", "", own, "", ""},
		{"get", "", "secrets", "", "kube-system", "", ""},
		{"delete", "", "secrets", "", own, "", ""},
		{"get", "", "configmaps", "", "kube-system", "extension-apiserver-authentication", "apiserver"},
		{"create", "authorization.k8s.io", "subjectaccessreviews", "", "", "", "apiserver controller-manager"},
		{"update", "", "resourcequotas", "status", ns, "", "apiserver"},
		{"update", "", "resourcequotas", "", ns, "", ""},
		{"watch", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "", "", "apiserver"},
		{"patch", "apiregistration.k8s.io", "apiservices", "", "", "v1alpha1.agents.kruise.io", "controller-manager"},
		{"patch", "apiregistration.k8s.io", "apiservices", "", "", "v1beta1.metrics.k8s.io", ""},
		{"update", "coordination.k8s.io", "leases", "", own, "sandlot-controller-manager", "controller-manager"},
		{"update", "coordination.k8s.io", "leases", "", own, "somebody-elses", ""},
		{"update", "coordination.k8s.io", "leases", "", "kube-system", "kube-scheduler", ""},
	} {
		what := fmt.Sprintf("%s %s/%s/%s %s in %q", tc.verb, tc.group, tc.resource, tc.subresource, tc.name, tc.namespace)
		allowed := map[string]bool{}
		for subject := range strings.FieldsSeq(tc.who) {
			if subjects[subject] == "" {
				t.Fatalf("%s: there is no %s", what, subject)
			}
			allowed[subject] = true
		}
		for subject, user := range subjects {
			ask := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: tc.verb, Group: tc.group, Resource: tc.resource, Subresource: tc.subresource, Namespace: tc.namespace, Name: tc.name,
				},
			}}
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a binding takes a moment to be known
				answer, err := admin(t).kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
				if err != nil {
					return err
				}
				if answer.Status.Allowed == allowed[subject] {
					return nil
				}
				if answer.Status.Allowed { // which waiting does not mend
					t.Errorf("%s may %s: %s", subject, what, answer.Status.Reason)
					return nil
				}
				return fmt.Errorf("%s may not %s", subject, what)
			})
		}
	}
}

// refused is what RBAC says to one of our service accounts, as it is quoted in a
// log: the name of the object if it has one, the user, the verb, the resource and its
// subresource, the group, and the namespace if there is one.
var refused = regexp.MustCompile(`(?:"([^"]*)" )?is forbidden: User "(system:serviceaccount:` + controlplane.Namespace +
	`:[^"]+)" cannot (\S+) resource "([^"/]+)/?([^"]*)" in API group "([^"]*)" (?:at the cluster scope|in the namespace "([^"]*)")`)

// TestNothingIsMissing looks into the logs of our programs, which run with the
// access of the install and nothing else, for what they were not allowed to do. It
// begins with everything that they do at their start. A kube-apiserver that another
// test restarts refuses everything until it knows its roles, so what was refused is
// asked for again.
func TestNothingIsMissing(t *testing.T) {
	ctx := t.Context()
	asked := map[refusal]bool{}
	for _, p := range sandlot.Processes() {
		if err := p.AwaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(p.Log())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			line = strings.ReplaceAll(line, `\`, "")
			if !strings.Contains(line, "system:serviceaccount:"+controlplane.Namespace) || !strings.Contains(line, " cannot ") {
				continue
			}
			match := refused.FindStringSubmatch(line)
			if match == nil {
				t.Errorf("%s: %s", p.Name(), line)
				continue
			}
			access := refusal{name: match[1], user: match[2], verb: match[3], resource: match[4], subresource: match[5], group: match[6], namespace: match[7]}
			if asked[access] {
				continue
			}
			asked[access] = true
			review, err := admin(t).kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, access.review(), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if !review.Status.Allowed {
				t.Errorf("%s: %s", p.Name(), line)
			}
		}
	}
}

// refusal is one thing that a service account was not allowed to do.
type refusal struct {
	name, user, verb, resource, subresource, group, namespace string
}

func (r refusal) review() *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   r.user,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + controlplane.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Name: r.name,
		},
	}}
}
