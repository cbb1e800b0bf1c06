// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Texts in conditions. They are OpenKruise's, and clients compare them.
const (
	// infeasible is why a resize failed that the node refused.
	infeasible = "pod resize is infeasible"
	// forbidden begins the message of one that must not be asked for.
	forbidden = "resource resize would change QoS class"
)

// Wanted says whether a sandbox is to be resized.
func Wanted(status *v1alpha1.SandboxStatus) bool {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.SandboxConditionInplaceUpdate)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonInplaceUpdating
}

// Forbidden is the message of a resize that would change the QoS class, which a
// pod has for life.
func Forbidden(from, to corev1.PodQOSClass) string {
	return fmt.Sprintf("%s from %s to %s, resize rejected", forbidden, from, to)
}

// IsForbidden says whether a message is one of Forbidden.
func IsForbidden(message string) bool { return strings.HasPrefix(message, forbidden) }
