// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// E2BServiceAccount is the name of the ServiceAccount for which the gateway of the E2B API
// acts, in the namespace of each team.
const E2BServiceAccount = "sandlot-e2b"

// MaxE2BNamespace is how many characters the namespace of a team may have: the id of a
// sandbox, behind the number of a port, is one DNS label of 63 characters.
const MaxE2BNamespace = 40

// Annotations in which the gateway of the E2B API remembers on a sandbox, through the
// annotations of its claim, what was asked for.
const (
	// AnnotationE2BTemplateID is the templateID that was asked for.
	AnnotationE2BTemplateID = E2BKeyPrefix + "template-id"
	// AnnotationE2BTimeout is the timeout in whole seconds that was asked for; a sandbox
	// that traffic resumes gets as much again.
	AnnotationE2BTimeout = E2BKeyPrefix + "timeout"
	// AnnotationE2BAutoPause is "true" where the sandbox is paused at the end of its
	// timeout, not deleted.
	AnnotationE2BAutoPause = E2BKeyPrefix + "auto-pause"
	// AnnotationE2BAutoResume is "true" where traffic resumes the paused sandbox.
	AnnotationE2BAutoResume = E2BKeyPrefix + "auto-resume"
	// AnnotationE2BPrivate is "true" where only who has the sandbox's traffic access token
	// reaches its ports.
	AnnotationE2BPrivate = E2BKeyPrefix + "private-traffic"
	// AnnotationE2BKeyID is the id of the API key that made the sandbox. The gateway also sends
	// it with each request, as an extra field of this name of the impersonated user.
	AnnotationE2BKeyID = E2BKeyPrefix + "key-id"
)

// E2BUser is the name of the user as whom the gateway of the E2B API acts for the team
// whose namespace this is.
func E2BUser(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + E2BServiceAccount
}

// E2BSandboxID is the id in the E2B API of the sandbox of a claim that can have one: see HasE2BSandboxID.
func E2BSandboxID(namespace, claim string) string { return namespace + "--" + claim }

// HasE2BSandboxID reports whether the claim of a name can have an id in the E2B API. A name with two dashes would make an
// id that a claim of another namespace can have too.
func HasE2BSandboxID(claim string) bool { return claim != "" && !strings.Contains(claim, "--") }

// SplitE2BSandboxID returns the namespace and the name of the claim that an id consists of.
// ok is false if it is no id.
func SplitE2BSandboxID(id string) (namespace, claim string, ok bool) {
	at := strings.LastIndex(id, "--")
	if at <= 0 || at+2 == len(id) {
		return "", "", false
	}
	return id[:at], id[at+2:], true
}

// IsE2BClaim reports whether a claim was made through the E2B API: by the user of the
// gateway, which the server itself has noted.
func IsE2BClaim(claim metav1.Object) bool {
	return claim.GetAnnotations()[AnnotationClaimedBy] == E2BUser(claim.GetNamespace())
}

// IsE2BPrivate reports whether only who has the traffic access token of a sandbox of the E2B
// API reaches its ports: see AnnotationE2BPrivate.
func IsE2BPrivate(sandbox metav1.Object) bool {
	return sandbox.GetAnnotations()[AnnotationE2BPrivate] == "true"
}

// IsE2B reports whether a sandbox is one of the E2B API, and which: bound to a claim
// that was made there. The server writes what that is judged by. One that failed before the
// claim had it, and is kept for debugging, is none: another one has its id.
func IsE2B(sandbox metav1.Object) (id string, ok bool) {
	labels := sandbox.GetLabels()
	claim := labels[LabelClaimName]
	id = E2BSandboxID(sandbox.GetNamespace(), claim)
	return id, labels[LabelSandboxID] == id && HasE2BSandboxID(claim) && IsE2BClaim(sandbox) && !IsReservedFailed(sandbox)
}
