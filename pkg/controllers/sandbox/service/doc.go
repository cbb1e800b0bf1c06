// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service reconciles the headless Services of the sandboxes whose spec.service is
// set: true creates one of the sandbox's name, false deletes it. Other sandboxes cost
// nothing here.
//
// The Service leads to the sandbox's pod, under the ports that the pod template
// names, those of sidecars included; those of runtimes that an installation injects
// are not among them, and can be reached at the same address. It stays through pauses,
// is corrected when a user changes it, and is deleted with the sandbox. A Service of its
// name that does not belong to the sandbox is left alone, and an event reports it. While
// there is a Service, status.serviceFQDN has its domain name (status.go). A sandbox that is
// kept past its shutdownTime has none.
//
// The rights that it needs:
//
//	agents.kruise.io         sandboxes         get, list, watch
//	agents.kruise.io         sandboxes/status  patch
//	agents.kruise.io         sandboxtemplates  get, list, watch
//	core                     podtemplates      get, list, watch
//	core                     services          get, list, watch, create, patch, delete
//	events.k8s.io (and core) events            create, patch
package service
