// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installed tests Sandlot as it is installed: its programs are pods of images that
// hack/image makes, from the manifests of artifacts/deploy, on a real node of
// pkg/testutil/realnode that enforces NetworkPolicies. kube-apiserver reaches the pods of
// Services directly. The etcd of Sandlot runs beside the cluster: the node has no DNS, by which
// members of an etcd in the cluster find each other.
//
// It needs what package node needs, and a kernel with NFQUEUE.
package installed
