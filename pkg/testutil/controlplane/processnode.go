// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// ProcessNode is the node on which the pods of the install are processes.
const ProcessNode = "processes"

// processNode does what a kubelet does for the pods of the install: it runs their init
// containers, starts the process that stands for each, says in their status how they are,
// and removes a pod that is deleted when its process has ended. kwok knows nothing of it.
type processNode struct {
	sandlot *Sandlot
	client  kubernetes.Interface
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	lives map[types.UID]bool
	// taken are the processes that stand for a pod.
	taken map[*Process]bool
}

// startProcessNode makes the node and serves it until stop.
func startProcessNode(ctx context.Context, s *Sandlot, client kubernetes.Interface) (*processNode, error) {
	node := newNode(ProcessNode)
	delete(node.Annotations, kwokAnnotation)
	// Only pods of the install.
	node.Spec.Taints = []corev1.Taint{{Key: ProcessNode, Effect: corev1.TaintEffectNoSchedule}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating the node of processes: %w", err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(), Reason: "Processes"}}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the node controller writes as well
		now, err := client.CoreV1().Nodes().Get(ctx, ProcessNode, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Status = node.Status
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("creating the node of processes: %w", err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &processNode{sandlot: s, client: client, cancel: cancel, lives: map[types.UID]bool{}, taken: map[*Process]bool{}}
	n.running.Go(func() { wait.UntilWithContext(run, n.sync, 4*readyInterval) })
	return n, nil
}

// stop returns when nothing is started any more.
func (n *processNode) stop() {
	n.cancel()
	n.running.Wait()
}

// sync begins the lives of new pods.
func (n *processNode) sync(ctx context.Context) {
	pods, err := n.client.CoreV1().Pods(n.sandlot.options.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + ProcessNode})
	if err != nil {
		return // asked again in a moment
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !n.lives[pod.UID] {
			n.lives[pod.UID] = true
			n.running.Go(func() { n.live(ctx, pod) })
		}
	}
}

// live is the life of a pod, from its start until it is gone.
func (n *processNode) live(ctx context.Context, pod *corev1.Pod) {
	until, end := context.WithCancel(ctx)
	defer end()
	n.running.Go(func() { // ends with until
		defer end()
		n.awaitDeletion(until, pod)
	})
	p, err := n.run(until, pod)
	if err != nil && until.Err() == nil {
		n.setStatus(until, pod, func(status *corev1.PodStatus) {
			status.Phase, status.Message = corev1.PodFailed, err.Error()
		})
	}
	<-until.Done()
	if ctx.Err() != nil {
		return // all of it ends
	}
	if p != nil {
		_ = p.Stop() // what does not stop is killed
		n.release(p)
	}
	_ = n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
}

// run starts a pod and says so. It returns the process that stands for it, and waits for that
// of a Job.
func (n *processNode) run(ctx context.Context, pod *corev1.Pod) (*Process, error) {
	inits, err := n.initialize(ctx, pod)
	if err != nil {
		return nil, err
	}
	p, once, err := n.process(ctx, pod)
	if err != nil {
		return nil, err
	}
	start := func() error { return p.Start(ctx) }
	if once {
		start = p.Launch // and never again
	}
	if err := start(); err != nil {
		return p, err
	}
	n.setStatus(ctx, pod, func(status *corev1.PodStatus) {
		status.Phase, status.InitContainerStatuses = corev1.PodRunning, inits
		status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		}
	})
	if !once {
		return p, nil
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		return p, nil
	}
	if code := p.life().cmd.ProcessState.ExitCode(); code != 0 {
		return p, fmt.Errorf("exit code %d\n%s", code, p.tail())
	}
	n.setStatus(ctx, pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodSucceeded
		status.Conditions = nil
	})
	return p, nil
}

// process returns what stands for the container of a pod, and reports whether it ends by
// itself: one of the processes of the install, or one of the pod's own.
func (n *processNode) process(ctx context.Context, pod *corev1.Pod) (_ *Process, once bool, err error) {
	var known []*Process
	switch pod.Labels["app.kubernetes.io/name"] {
	case etcdName:
		known = []*Process{n.sandlot.etcd}
	case apiServerName:
		known = n.sandlot.apiServers
	case controllersName:
		known = []*Process{n.sandlot.controllers}
	default:
		p, err := n.sandlot.jobProcess(ctx, pod)
		return p, true, err
	}
	var free *Process
	err = wait.PollUntilContextCancel(ctx, readyInterval, true, func(context.Context) (bool, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, p := range known {
			if !n.taken[p] {
				n.taken[p], free = true, p
				return true, nil
			}
		}
		return false, nil // until the one before it has ended
	})
	return free, false, err
}

func (n *processNode) release(p *Process) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, p)
}

// awaitDeletion returns when a pod is to end.
func (n *processNode) awaitDeletion(ctx context.Context, pod *corev1.Pod) {
	_ = wait.PollUntilContextCancel(ctx, 4*readyInterval, true, func(ctx context.Context) (bool, error) {
		now, err := n.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return err == nil && (now.DeletionTimestamp != nil || now.UID != pod.UID), nil
	})
}

func (n *processNode) setStatus(ctx context.Context, pod *corev1.Pod, change func(*corev1.PodStatus)) {
	_ = wait.PollUntilContextCancel(ctx, readyInterval, true, func(ctx context.Context) (bool, error) {
		now, err := n.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), nil
		}
		change(&now.Status)
		now.Status.StartTime = &metav1.Time{Time: time.Now()}
		_, err = n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err == nil, nil
	})
}
