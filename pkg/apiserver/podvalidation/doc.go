// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podvalidation validates the pods that a SandboxSet or a SandboxTemplate
// asks for, when it is written. That takes more than the object: the templates that
// it refers to, and the cluster, which alone knows what a pod may be. Claims never
// come here.
//
// What cannot be found out is a warning and no error: the API server continues when
// the cluster does not answer, and whatever is wrong shows on the sandboxes later.
package podvalidation
