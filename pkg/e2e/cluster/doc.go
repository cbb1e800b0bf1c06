// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster has the tests of Sandlot in a cluster: against a real control
// plane, as the aggregated API server that it is, with the access rights and the
// arguments of the install. There is nothing in it but tests.
package cluster
