// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a real Kubernetes control plane on this machine, for
// tests and for trying things out: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and, instead of kubelets, kwok, each
// a child process on the loopback interface. Install puts Sandlot beside it, as
// an aggregated API server.
//
// Child processes do not outlive this one: on Linux they are killed with it,
// however it ends. Elsewhere, only Stop ends them.
package controlplane
