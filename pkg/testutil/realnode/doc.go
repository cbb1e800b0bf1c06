// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package realnode runs real nodes beside a control plane of package controlplane: a kubelet
// with containerd and runc, so that pods are containers. It is for tests and for trying things
// out, on Linux as root.
//
// A node is a process in mount, PID, network, UTS and IPC namespaces of its own, and what that
// starts. It ends with this process, however that ends, and its mounts and interfaces with it.
// Its cgroups and routes are removed by Stop, or by the next node or RemoveLeftovers after a kill.
//
// The process is this program again: main, or TestMain, has to call MaybeRunNode first.
//
// Nothing is pulled, and nothing leaves the machine: pods reach the host's end of the link to
// their node, and the pods of other nodes. There is no DNS, and there are no Services.
package realnode
