// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import corev1 "k8s.io/api/core/v1"

// DefaultListKey returns the default of a field that is a key of a list in a pod template, for
// elements that do not set it. The default of protocol is that of Kubernetes. The other keys have
// none there, and are 0 or empty here.
func DefaultListKey(field string, isInteger bool) any {
	switch {
	case field == "protocol":
		return string(corev1.ProtocolTCP)
	case isInteger:
		return 0
	}
	return ""
}
