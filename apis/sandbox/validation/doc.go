// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation says which objects of the group are refused, and why. It is
// pure: it looks at the object and, on update, at the one before, never at
// others, a clock or a client. Texts that programs for OpenKruise Agents look for
// are worded as there.
package validation
