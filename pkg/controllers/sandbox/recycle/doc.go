// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recycle gives used sandboxes back to the pools that they came from. To clean a
// sandbox is to delete its pod: nothing of its user is in the one that it gets instead.
//
// Every step is a write of the sandbox, and the next one is decided from what is stored, so
// any of the controllers may end between two of them. rules.go has what the status says at
// each; plan.go decides, from values alone; the rest carries it out.
//
//	stored                                   who continues, and how
//	Running, asked for                       this controller: phase Recycling, RecyclingStarted
//	Recycling, RecyclingStarted              the controller of pods: deletes the pod; RecyclingCompleted
//	Recycling, RecyclingCompleted            this controller: metadata and spec of a new member of the pool
//	the same, and a set is the controller    the controller of pods: a new pod; Running, RecyclingSucceeded
//
// Until the last write the sandbox is not ready, so it cannot be claimed, but it counts for
// its set as one that starts: none is made in its place. If it is one too many, the set
// takes it away, before those that were never used. What goes wrong from then on is the
// set's matter too, as with any sandbox that starts.
//
// Annotations ask for it, which users write. What they could have rewritten to reach the
// pool of another set is immutable while a sandbox is bound (its pool and its revision) or
// not theirs to write (the UID of the set), and nothing else that they wrote outlasts the
// third step.
//
// The rights that it needs, in all namespaces:
//
//	agents.kruise.io         sandboxes               get, list, watch, patch, delete
//	agents.kruise.io         sandboxes/status        patch
//	agents.kruise.io         sandboxsets             get, adopt
//	agents.kruise.io         sandboxtemplates        get, list, watch
//	core                     podtemplates            get, list, watch
//	events.k8s.io (and core) events                  create, patch
package recycle
