// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the program sandlot-gateway: flags, logs, and a run of the gateway beside
// a cluster.
package app
