// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the commands sandlot backup and sandlot restore: flags, and what the pods of
// the install run.
package app
