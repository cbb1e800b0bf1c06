// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/findings"
)

// right is what a program must be able to do.
type right struct {
	group, resource, subresource string
	verbs                        []string
	// own is a right in the namespace of the install; else it is one in all, or of a
	// resource that has none.
	own bool
	// namespace is another one that the right is in.
	namespace string
	// name is that of the only object that the right is needed for; empty is all.
	name string
	// choice is what else may be why it is missing: an administrator may do without it, or
	// give it by namespace.
	choice string
}

func (r *right) String() string {
	text := r.resource
	if r.subresource != "" {
		text += "/" + r.subresource
	}
	if r.group != "" {
		text += "." + r.group
	}
	if r.name != "" {
		text += " " + r.name
	}
	return text
}

var (
	read      = []string{"get", "list", "watch"}
	follow    = []string{"list", "watch"}
	update    = []string{"get", "list", "watch", "update"}
	keep      = []string{"get", "list", "watch", "create", "patch", "delete"}
	ours      = v1alpha1.GroupName
	admission = "admissionregistration.k8s.io"
)

// byNamespace is the choice to let the controllers make pods in some namespaces only.
const byNamespace = "or give it by a Role in each namespace of sandboxes, which cannot be seen here"

// needed is what the programs cannot do without, by service account. docs/install.md says
// what each is for.
var needed = map[string][]right{
	apiServer: {
		{group: "authentication.k8s.io", resource: "tokenreviews", verbs: []string{"create"}},
		{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: []string{"create"}},
		{resource: "configmaps", namespace: metav1.NamespaceSystem, name: "extension-apiserver-authentication", verbs: read},
		{resource: "namespaces", verbs: read},
		{group: admission, resource: "mutatingadmissionpolicies", verbs: follow},
		{group: admission, resource: "mutatingadmissionpolicybindings", verbs: follow},
		{group: admission, resource: "mutatingwebhookconfigurations", verbs: follow},
		{group: admission, resource: "validatingwebhookconfigurations", verbs: follow},
		{group: admission, resource: "validatingadmissionpolicies", verbs: follow},
		{group: admission, resource: "validatingadmissionpolicybindings", verbs: follow},
		{group: "flowcontrol.apiserver.k8s.io", resource: "flowschemas", verbs: follow},
		{group: "flowcontrol.apiserver.k8s.io", resource: "prioritylevelconfigurations", verbs: follow},
		{resource: "resourcequotas", verbs: read},
		{resource: "resourcequotas", subresource: "status", verbs: []string{"update"}},
		{resource: "podtemplates", verbs: []string{"get"}},
		{resource: "nodes", verbs: follow, choice: noNodes},
		{resource: "persistentvolumes", verbs: []string{"get"}},
		{resource: "persistentvolumeclaims", verbs: []string{"get"}},
		{resource: "pods", verbs: []string{"get"}},
	},
	controllerManager: {
		{group: ours, resource: "sandboxes", verbs: keep},
		{group: ours, resource: "sandboxsets", verbs: []string{"get", "list", "watch", "patch", "adopt"}},
		{group: ours, resource: "sandboxes", subresource: "status", verbs: []string{"patch"}},
		{group: ours, resource: "sandboxsets", subresource: "status", verbs: []string{"patch"}},
		{group: ours, resource: "sandboxtemplates", verbs: keep},
		{group: ours, resource: "sandboxclaims", verbs: []string{"get", "list", "watch", "delete"}},
		{group: ours, resource: "sandboxclaims", subresource: "status", verbs: []string{"patch"}},
		{group: ours, resource: "sandboxclaims", subresource: "finalizers", verbs: []string{"update"}},
		{group: ours, resource: "sandboxes", subresource: "finalizers", verbs: []string{"update"}},
		{resource: "podtemplates", verbs: read},
		{resource: "pods", verbs: []string{"get", "list", "watch", "patch", "delete"}},
		{resource: "pods", verbs: []string{"create"}, choice: byNamespace},
		{resource: "pods", subresource: "resize", verbs: []string{"patch"}},
		{resource: "persistentvolumeclaims", verbs: []string{"get"}},
		{resource: "persistentvolumeclaims", verbs: []string{"create"}, choice: byNamespace},
		{resource: "nodes", verbs: follow, choice: noNodes},
		{resource: "services", verbs: keep},
		{group: "networking.k8s.io", resource: "networkpolicies", verbs: keep},
		{resource: "namespaces", verbs: []string{"get"}},
		{group: "events.k8s.io", resource: "events", verbs: []string{"create", "patch"}},
		{group: "coordination.k8s.io", resource: "leases", own: true, verbs: []string{"create"}},
		{group: "coordination.k8s.io", resource: "leases", own: true, name: controllerManager, verbs: []string{"get", "update"}},
		{group: "apiregistration.k8s.io", resource: "apiservices", name: "v1alpha1." + ours, verbs: []string{"get", "list", "watch", "patch"}, choice: ownCertificates},
		{resource: "configmaps", own: true, name: "sandbox-injection-config", verbs: read},
		{group: "coordination.k8s.io", resource: "leases", own: true, name: "sandlot-certificates", verbs: []string{"get", "update"}, choice: ownBoth},
		{resource: "secrets", own: true, verbs: []string{"create"}, choice: ownBoth},
		{resource: "configmaps", own: true, verbs: []string{"create"}, choice: ownBoth},
		{resource: "secrets", own: true, name: "sandlot-signer", verbs: update, choice: ownCertificates},
		{resource: "secrets", own: true, name: "sandlot-apiserver-serving", verbs: update, choice: ownCertificates},
		{resource: "secrets", own: true, name: "sandlot-controller-manager-serving", verbs: update, choice: ownCertificates},
		{resource: "configmaps", own: true, name: "sandlot-ca", verbs: update, choice: ownCertificates},
		{resource: "secrets", own: true, name: "sandlot-encryption", verbs: update, choice: ownKeys},
		{resource: "secrets", own: true, name: "sandlot-encryption-copy", verbs: update, choice: ownKeys},
		{resource: "configmaps", own: true, name: "sandlot-encryption", verbs: update, choice: ownKeys},
		{group: "batch", resource: "cronjobs", own: true, name: backupJob, verbs: []string{"get"}, choice: "or do without the metric of the last backup"},
		{group: "authentication.k8s.io", resource: "tokenreviews", verbs: []string{"create"}, choice: noMetrics},
		{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: []string{"create"}, choice: noMetrics},
	},
}

const (
	// ownCertificates is the choice to have certificates of another CA.
	ownCertificates = "or look after certificates yourself: docs/certificates.md, Your own certificates"
	// ownKeys is the choice to encrypt with keys of one's own, and ownBoth to do both.
	ownKeys = "or look after the keys of the store yourself: docs/encryption.md, Your own keys"
	ownBoth = "or look after certificates and the keys of the store yourself: docs/certificates.md and docs/encryption.md"
	// noNodes is the choice to treat sandboxes on all nodes the same.
	noNodes = "or accept that sandboxes on cordoned and failed nodes are treated like all others: docs/scaling.md, Nodes that take no pods"
	// noMetrics is the choice to have no metrics of the controllers, which they give to no one
	// of whom they cannot ask.
	noMetrics = "or do without the metrics of the controllers"
)

// lacking is a right that a program does not have, with the verbs that it lacks.
type lacking struct {
	account string
	right   right
	verbs   []string
}

func lookAtRights(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	var all []lacking
	asked := 0
	for _, account := range []string{apiServer, controllerManager} {
		for _, r := range needed[account] {
			var verbs []string
			for _, verb := range r.verbs {
				asked++
				may, err := c.may(ctx, account, r, verb)
				if err != nil {
					return nil, "", err
				}
				if !may {
					verbs = append(verbs, verb)
				}
			}
			if len(verbs) > 0 {
				all = append(all, lacking{account, r, verbs})
			}
		}
	}
	return judgeRights(all, c.namespace), fmt.Sprintf("the programs have the %d rights that they need", asked), nil
}

// may reports whether the service account of a program may do something.
func (c *cluster) may(ctx context.Context, account string, r right, verb string) (bool, error) {
	namespace := r.namespace
	if r.own {
		namespace = c.namespace
	}
	review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + c.namespace + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + c.namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Group: r.group, Resource: r.resource, Subresource: r.subresource, Name: r.name, Verb: verb,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func judgeRights(all []lacking, namespace string) (found []findings.Finding) {
	for _, l := range all {
		level, action := findings.Error, "apply the roles of the install again, and see that they are bound: docs/install.md, What each permission is for"
		if l.right.choice != "" {
			level, action = findings.Warning, action+"; "+l.right.choice
		}
		account := "ServiceAccount " + namespace + "/" + l.account
		found = append(found, problem(level, account, fmt.Sprintf("%s may not %s %s", account, strings.Join(l.verbs, ", "), &l.right), action))
	}
	slices.SortStableFunc(found, func(a, b findings.Finding) int { return strings.Compare(string(a.Level), string(b.Level)) })
	return found
}
