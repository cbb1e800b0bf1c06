// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package standalone runs everything in one process on one machine: etcd, the
// API server and the controllers. Only the pods are missing there: sandboxes
// are simulated. It wires the parts together and contains no logic of theirs.
package standalone
