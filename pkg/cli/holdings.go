// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// stateClaimGone is what a sandbox is listed with that has outlived its claim.
const stateClaimGone = "ClaimGone"

// holdings are who holds what: claims with their sandboxes, and sandboxes that have
// outlived their claims.
type holdings struct {
	claims   []*v1alpha1.SandboxClaim
	outlived []*v1alpha1.Sandbox
}

// newHoldings puts together the claims and the claimed sandboxes of the same namespaces.
func newHoldings(claims []*v1alpha1.SandboxClaim, claimed []*v1alpha1.Sandbox) holdings {
	there := map[types.UID]bool{}
	for _, claim := range claims {
		there[claim.UID] = true
	}
	h := holdings{claims: claims}
	for _, sandbox := range claimed {
		if !there[types.UID(sandbox.Annotations[v1alpha1.AnnotationOwner])] {
			h.outlived = append(h.outlived, sandbox)
		}
	}
	return h
}

// of leaves only what a user holds.
func (h holdings) of(user string) holdings {
	mine := holdings{}
	for _, claim := range h.claims {
		if claim.Annotations[v1alpha1.AnnotationClaimedBy] == user {
			mine.claims = append(mine.claims, claim)
		}
	}
	for _, sandbox := range h.outlived {
		// The label: its annotation has the beginning of a long name only.
		if sandbox.Labels[v1alpha1.LabelClaimedBy] == v1alpha1.ClaimedByLabel(user) {
			mine.outlived = append(mine.outlived, sandbox)
		}
	}
	return mine
}

// objects are the holdings for programs. The tokens of runtimes are left out.
func (h holdings) objects() []runtime.Object {
	objects := make([]runtime.Object, 0, len(h.claims)+len(h.outlived))
	for _, claim := range h.claims {
		objects = append(objects, claim)
	}
	for _, sandbox := range h.outlived {
		sandbox = sandbox.DeepCopy()
		for _, secret := range []string{v1alpha1.AnnotationRuntimeAccessToken, v1alpha1.AnnotationE2BEnvdAccessToken, v1alpha1.AnnotationInitRuntimeRequest} {
			delete(sandbox.Annotations, secret)
		}
		objects = append(objects, sandbox)
	}
	return objects
}

// table is the holdings for people: a row for each sandbox, and for each claim without.
func (h holdings) table(now time.Time, namespaces bool) *metav1.Table {
	columns := []column{{name: "Claim"}, {name: "Status"}, {name: "Claimed"}, {name: "Sandbox"}, {name: "IP"}, {name: "ClaimedBy"}, {name: "Age"},
		{name: "Pool", wide: true}, {name: "Message", wide: true}}
	var rows [][]string
	add := func(namespace string, cells ...string) {
		if namespaces {
			cells = append([]string{namespace}, cells...)
		}
		rows = append(rows, cells)
	}
	if namespaces {
		columns = append([]column{{name: "Namespace"}}, columns...)
	}
	for _, claim := range h.claims {
		sandboxes := claim.Status.Sandboxes
		if len(sandboxes) == 0 {
			sandboxes = []v1alpha1.ClaimedSandbox{{}}
		}
		for _, sandbox := range sandboxes {
			add(claim.Namespace, claim.Name, stateOf(claim), progress(claim), sandbox.Name, firstOf(sandbox.PodIPs),
				claim.Annotations[v1alpha1.AnnotationClaimedBy], age(claim.CreationTimestamp, now), poolOf(claim), words(claim))
		}
	}
	for _, sandbox := range h.outlived {
		add(sandbox.Namespace, sandbox.Labels[v1alpha1.LabelClaimName], stateClaimGone, "", sandbox.Name, sandbox.Status.PodInfo.PodIP,
			sandbox.Annotations[v1alpha1.AnnotationClaimedBy], age(sandbox.CreationTimestamp, now), sandbox.Labels[v1alpha1.LabelSandboxPool], sandbox.Status.Message)
	}
	return newTable(columns, rows)
}

func firstOf(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

func age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(since.Time))
}
