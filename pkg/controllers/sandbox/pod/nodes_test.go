// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/nodes"
)

func startedFor(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: now.Add(-d)} }
}

// TestNodeNotSeenYet: a pod that the watch of pods shows before that of nodes shows its node is on no node that
// is gone.
func TestNodeNotSeenYet(t *testing.T) {
	k := &knownNodes{pods: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{nodeIndex: podNode})}
	pod := trim(newPod(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }, startedFor(time.Second)))
	if err := k.pods.Add(pod); err != nil {
		t.Fatal(err)
	}
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer k.queue.ShutDown()
	expect := func(what string, at time.Time, want bool) {
		t.Helper()
		if got := k.isGone(pod, at); got != want {
			t.Errorf("%s: the node is gone: %t", what, got)
		}
	}
	k.NodesListed(nil)
	expect("not seen yet", now, false)
	expect("not seen for long", now.Add(nodeSeenWithin), true)
	k.NodeChanged("n1", nodes.State{})
	expect("seen", now.Add(nodeSeenWithin), false)
	k.NodeDeleted("n1")
	expect("seen to go", now, true)
	k.NodesListed(nil)
	expect("not in the next list either", now, true)
	if err := k.pods.Delete(pod); err != nil {
		t.Fatal(err)
	}
	k.NodeChanged("n2", nodes.State{})
	k.NodeDeleted("n2")
	if len(k.names) > 0 {
		t.Errorf("nodes without pods are kept: %v", k.names)
	}
}

// TestKnownNodes: sandboxes are looked at when their node goes or comes, also if that was missed.
func TestKnownNodes(t *testing.T) {
	onNode := func(name, node string) *corev1.Pod {
		return newPod(func(p *corev1.Pod) { p.Name, p.Spec.NodeName = name, node }, startedFor(nodeSeenWithin+1))
	}
	k := &knownNodes{pods: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{nodeIndex: podNode})}
	pods := []*corev1.Pod{onNode("a", "n1"), onNode("b", "n2"), onNode("c", "n2"), onNode("pending", "")}
	for _, pod := range pods {
		if err := k.pods.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	expect := func(what string, queued, gone []string) {
		t.Helper()
		var woken, are []string
		for q.Len() > 0 {
			request, _ := q.Get()
			q.Done(request)
			woken = append(woken, request.Name)
		}
		slices.Sort(woken)
		for _, pod := range pods {
			if k.isGone(pod, now) {
				are = append(are, pod.Name)
			}
		}
		if diff := cmp.Diff([][]string{queued, gone}, [][]string{woken, are}); diff != "" {
			t.Errorf("%s: queued, and on nodes that are gone (-want +got):\n%s", what, diff)
		}
	}
	states := func(names ...string) map[string]nodes.State {
		all := map[string]nodes.State{}
		for _, name := range names {
			all[name] = nodes.State{} // whether they take pods does not matter
		}
		return all
	}

	k.NodeDeleted("n1")
	expect("before a list", nil, nil)
	k.NodesListed(states("n1"))
	expect("a list before the start", nil, []string{"b", "c"})
	k.queue = q
	k.NodesListed(states("n1", "n2"))
	expect("a list with another", []string{"b", "c"}, nil)
	k.NodeChanged("n1", nodes.State{TakesPods: true})
	k.NodeChanged("n3", nodes.State{})
	expect("nothing new", nil, nil)
	k.NodeDeleted("n1")
	k.NodeDeleted("n1")
	expect("one is gone", []string{"a"}, []string{"a"})
	k.NodesListed(states("n1"))
	expect("it is back, another is gone", []string{"a", "b", "c"}, []string{"b", "c"})
	k.NodeChanged("n2", nodes.State{})
	expect("back as well", []string{"b", "c"}, nil)
	k.NodeDeleted("n2")
	expect("gone again", []string{"b", "c"}, []string{"b", "c"})
	k.NodesUnknown()
	k.NodesUnknown()
	expect("nothing may be read", []string{"b", "c"}, nil)
	var none *knownNodes
	if none.isGone(pods[0], now) || k.isGone(nil, now) {
		t.Error("without nodes, or without a pod, a node is gone")
	}
}

// TestReadyByNode: a sandbox whose pod says that it is ready is not if its node is gone.
func TestReadyByNode(t *testing.T) {
	o := &observation{sandbox: newSandbox(phase(v1alpha1.SandboxRunning), addressed), pod: newPod(runs("True"), startedFor(time.Hour)), isFromServer: true, revision: revision, now: now}
	for names, want := range map[*knownNodes]string{
		nil:                                     v1alpha1.ReasonPodReady,
		{}:                                      v1alpha1.ReasonPodReady,
		{names: map[string]bool{"node": true}}:  v1alpha1.ReasonPodReady,
		{names: map[string]bool{"other": true}}: v1alpha1.ReasonNodeLost,
	} {
		o.nodes = names
		p := decide(o)
		ready := meta.FindStatusCondition(p.status.Conditions, v1alpha1.SandboxConditionReady)
		if ready.Reason != want || (ready.Status == yes) != (want == v1alpha1.ReasonPodReady) || p.status.Phase != v1alpha1.SandboxRunning {
			t.Errorf("%+v: %+v in phase %s", names, ready, p.status.Phase)
		}
	}
}
