// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package judge says whether pods can be made from what a SandboxSet or a
// SandboxTemplate says, at the time when it is written. That takes more than the
// object: the templates that it refers to, and the cluster, which alone knows what
// a pod may be. Claims never come here.
//
// What cannot be found out is a warning and no error: the API server goes on when
// the cluster does not answer, and whatever is wrong shows on the sandboxes later.
package judge
