// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2b serves the HTTP API of E2B over sandboxes and claims, for its SDKs from 1.13
// on. Each request acts for the team of its API key, as the user that the cluster knows
// that team by; the cluster decides what is allowed. Nothing is kept here: two gateways
// answer alike.
//
// docs/design.md follows a create through the code.
package e2b
