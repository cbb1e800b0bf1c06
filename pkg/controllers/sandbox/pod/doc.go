// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod runs sandboxes as Pods: one Pod for each Sandbox, of its name and
// owned by it, with the PersistentVolumeClaims that the sandbox asks for; and it
// reports the state of the Pod in the sandbox's status. Pausing a sandbox deletes the
// Pod, resuming creates a new one.
//
// A reconcile (controller.go) observes the sandbox and its pod in the cache (observe.go), decides what
// to do, from values alone (plan.go, with resume.go, recycle.go and agentsandbox.go), and does it
// (act.go): it writes metadata and status (write.go), and creates, labels or deletes the pod (create.go,
// label.go, act.go). memory.go has what it remembers of a sandbox, and handlers.go the events that
// queue one.
//
// A reconcile patches the metadata of the sandbox at most once and its status at most once
// (twice where the deletion of a pod is refused), all only as the version that the plan was
// made for: the server refuses a plan made from an old cache, and it is made again. No
// plan is made from a version that is older than the controller's own last write. Where it
// has consequences that a pod is gone, only the server is trusted when it says so, because
// the cache may be late and a sandbox that failed stays failed.
//
// A sandbox costs one create of a pod and two writes of its status (Ready False when the
// controller picks it up, then Running; one more if the pod is ready later), a claimed one a patch of the pod's metadata: where that
// only names the claim, when claims on the set pause (label.go).
//
// A sandbox that a claim left to be changed in place gets other resources through the
// pod's subresource resize, and another image by a patch of the pod, at once (resize.go).
// The cache has none of what that takes; the server is asked for these pods, whenever
// something about them changes. What ran before the image was asked for is noted on the
// pod by that patch, so that any controller can find out when the container was made again.
//
// A sandbox that refers to a template instead of holding one, such as an unused one
// of a set that does, waits for that template without failing (template.go). Once
// its pod is there, a change of the template changes nothing. The same is true of the
// runtimes of a sandbox, which are injected into the template when the pod is created
// (runtimes.go).
//
// The rights that it needs, in all namespaces:
//
//	agents.kruise.io         sandboxes               get, list, watch, patch
//	agents.kruise.io         sandboxes/status        patch
//	agents.kruise.io         sandboxes/finalizers    update
//	agents.x-k8s.io          sandboxes/finalizers    update (where that API is served)
//	agents.kruise.io         sandboxtemplates        get, list, watch
//	core                     podtemplates            get, list, watch
//	core                     pods                    get, list, watch, create, patch, delete
//	core                     pods/resize             patch
//	core                     persistentvolumeclaims  get, create
//	core                     configmaps              get, list, watch (the one with the runtimes)
//	events.k8s.io (and core) events                  create, patch
//
// The finalizers are for clusters with OwnerReferencesPermissionEnforcement: an
// owner reference that blocks the deletion of a sandbox needs them.
package pod
