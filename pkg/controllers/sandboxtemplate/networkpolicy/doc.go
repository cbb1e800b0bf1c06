// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy reconciles the NetworkPolicy of each SandboxTemplate that has one
// managed. It selects the pods of the template's sandboxes by a label that they have
// from birth, so that neither a refill nor a claim writes anything here.
//
// A policy is created, corrected, and deleted when the template wants none any more. It
// outlives a template that is deleted, as its namespace owns it too, and is deleted when
// no set, sandbox or pod is left that it is for. A policy of its name that does not
// belong to the template is left alone, and an event reports it. SandboxTemplates that
// hold the revision of a set never have one: their pods are labelled with the template
// that the set refers to.
//
// The rights that it needs:
//
//	agents.kruise.io         sandboxtemplates  get, list, watch
//	agents.kruise.io         sandboxsets       list, watch
//	agents.kruise.io         sandboxes         list, watch
//	core                     pods              list, watch
//	core                     namespaces        get
//	networking.k8s.io        networkpolicies   get, list, watch, create, patch, delete
//	events.k8s.io (and core) events            create, patch
package networkpolicy
