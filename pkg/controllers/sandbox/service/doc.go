// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service keeps the headless Services of the sandboxes whose spec.service is
// set: true makes one of the sandbox's name, false removes it. What other sandboxes
// have is none of its business, and they cost nothing here.
//
// The Service leads to the sandbox's pod, under the ports that the pod template
// names, those of sidecars included; those of runtimes that an installation puts
// beside are not among them, and can be reached at the same address. It stays through
// pauses, is corrected when somebody changes it, and goes with the sandbox. One of
// its name that is somebody else's is left alone, and told of.
//
// What it may do in a cluster:
//
//	agents.kruise.io         sandboxes         get, list, watch
//	agents.kruise.io         sandboxtemplates  get, list, watch
//	core                     podtemplates      get, list, watch
//	core                     services          get, list, watch, create, patch, delete
//	events.k8s.io (and core) events            create, patch
package service
