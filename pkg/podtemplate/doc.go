// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podtemplate makes objects out of templates: a sandbox from a set, and
// the hashes that tell one template from another. It is pure: values in, values
// out, the same on every server and in every controller.
package podtemplate
