// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node tests Sandlot where pods are containers: on a real node of
// pkg/testutil/realnode, beside a real control plane. What it does not need containers for is
// tested in pkg/e2e/cluster.
//
// It needs Linux, root and some programs. Without them its tests are skipped, or fail where
// SANDLOT_TEST_NODES=required, as in CI.
package node
