// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// world is all that there is in a namespace.
type world struct {
	claims    map[string]*v1alpha1.SandboxClaim
	sandboxes map[string]*v1alpha1.Sandbox
	pods      map[string]*corev1.Pod
}

// world reads a namespace. While a client writes there, what it says of one kind
// is of another time than what it says of the next.
func (c *clients) world(ctx context.Context, namespace string) (world, error) {
	w := world{claims: map[string]*v1alpha1.SandboxClaim{}, sandboxes: map[string]*v1alpha1.Sandbox{}, pods: map[string]*corev1.Pod{}}
	claims, err := c.SandboxClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	sandboxes, err := c.Sandboxes(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	for i := range claims.Items {
		w.claims[claims.Items[i].Name] = &claims.Items[i]
	}
	for i := range sandboxes.Items {
		w.sandboxes[sandboxes.Items[i].Name] = &sandboxes.Items[i]
	}
	for i := range pods.Items {
		w.pods[pods.Items[i].Name] = &pods.Items[i]
	}
	return w, nil
}

// awaitCalm waits until no claim is in progress, the set "pool" is full, and pods
// and sandboxes match, and returns what there is then. The dead are sandboxes
// that have lost their pods by right.
func (c *clients) awaitCalm(t testing.TB, namespace string, replicas int32, dead ...string) world {
	t.Helper()
	var calm world
	look := func(check func(world) error) {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			var err error
			if calm, err = c.world(ctx, namespace); err != nil {
				return err
			}
			return check(calm)
		})
	}
	look(world.inProgress)
	expect.FullPool(t, c, namespace, "pool", replicas)
	look(func(w world) error { return w.mismatches(dead) })
	return calm
}

func (w world) inProgress() error {
	waiting := 0
	for _, claim := range w.claims {
		if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
			waiting++
		}
	}
	if waiting > 0 {
		return fmt.Errorf("%d of %d claims are in progress", waiting, len(w.claims))
	}
	return nil
}

// mismatches are sandboxes without their pod and pods without their sandbox, or
// without what a claim gave it.
func (w world) mismatches(dead []string) error {
	var errs []error
	for name, pod := range w.pods {
		sandbox := w.sandboxes[name]
		if sandbox == nil || !metav1.IsControlledBy(pod, sandbox) {
			errs = append(errs, fmt.Errorf("pod %s is no sandbox's: %v", name, pod.OwnerReferences))
		}
	}
	for name, sandbox := range w.sandboxes {
		if slices.Contains(dead, name) {
			continue
		}
		pod := w.pods[name]
		switch {
		case pod == nil:
			errs = append(errs, fmt.Errorf("sandbox %s (%s: %s) has no pod", name, sandbox.Status.Phase, sandbox.Status.Message))
		case sandbox.Status.PodInfo.PodUID != pod.UID || sandbox.Status.Phase != v1alpha1.SandboxRunning:
			errs = append(errs, fmt.Errorf("sandbox %s is %s with pod %q, which is %s",
				name, sandbox.Status.Phase, sandbox.Status.PodInfo.PodUID, pod.UID))
		case pod.Labels[claimLabel] != sandbox.Labels[claimLabel]:
			errs = append(errs, fmt.Errorf("the pod of sandbox %s is still labelled as one of claim %q", name, pod.Labels[claimLabel]))
		}
	}
	return summary(errs)
}

// check requires, of a namespace at rest, that
//
//  1. each claim is Completed with as many sandboxes as it wants, which name it;
//  2. no sandbox is bound to two claims, and none to one that is not there;
//  3. each bound sandbox has a pod, at the address that the claim says, and the
//     pod names the claim;
//  4. what clients got is stored, and nothing else.
//
// Dead sandboxes need no pod.
func (w world) check(t testing.TB, answers []load.Answer, dead ...string) {
	t.Helper()
	for _, err := range w.wrong(answers, dead) {
		t.Error(err)
	}
}

// wrong is what check finds.
func (w world) wrong(answers []load.Answer, dead []string) []error {
	var errs []error
	for _, claim := range w.claims {
		if err := w.checkClaim(claim, dead); err != nil {
			errs = append(errs, fmt.Errorf("claim %s: %w", claim.Name, err))
		}
	}
	if err := w.checkBound(); err != nil {
		errs = append(errs, err)
	}
	known := map[string]bool{}
	for _, answer := range answers {
		known[answer.Claim.Name] = true
		if err := w.keeps(answer.Claim); err != nil {
			errs = append(errs, fmt.Errorf("claim %s, which was answered: %w", answer.Claim.Name, err))
		}
	}
	for name := range w.claims {
		if !known[name] {
			errs = append(errs, fmt.Errorf("claim %s is stored, and nobody was told", name))
		}
	}
	return errs
}

// checkClaim looks for the sandboxes and pods of a claim.
func (w world) checkClaim(claim *v1alpha1.SandboxClaim, dead []string) error {
	status := claim.Status
	want := int(*claim.Spec.Replicas)
	if status.Phase != v1alpha1.SandboxClaimPhaseCompleted || int(status.ClaimedReplicas) != want || len(status.Sandboxes) != want {
		return fmt.Errorf("wants %d, has %+v", want, status)
	}
	var errs []error
	for _, entry := range status.Sandboxes {
		sandbox, pod := w.sandboxes[entry.Name], w.pods[entry.Name]
		if sandbox == nil {
			errs = append(errs, fmt.Errorf("sandbox %s is not there", entry.Name))
			continue
		}
		if owner := sandbox.Annotations[v1alpha1.AnnotationOwner]; owner != string(claim.UID) {
			errs = append(errs, fmt.Errorf("sandbox %s names %q", entry.Name, owner))
		}
		switch {
		case slices.Contains(dead, entry.Name):
		case pod == nil:
			errs = append(errs, fmt.Errorf("sandbox %s has no pod", entry.Name))
		case !slices.Contains(entry.PodIPs, pod.Status.PodIP):
			errs = append(errs, fmt.Errorf("sandbox %s is said to be at %v, its pod is at %s", entry.Name, entry.PodIPs, pod.Status.PodIP))
		case pod.Labels[claimLabel] != claim.Spec.Labels[claimLabel]:
			errs = append(errs, fmt.Errorf("the pod of sandbox %s is labelled as one of claim %q", entry.Name, pod.Labels[claimLabel]))
		}
	}
	return summary(errs)
}

// checkBound looks for sandboxes that are bound otherwise than the claims say.
func (w world) checkBound() error {
	listed := map[string]string{}
	byUID := map[types.UID]*v1alpha1.SandboxClaim{}
	var errs []error
	for _, claim := range w.claims {
		byUID[claim.UID] = claim
		for _, entry := range claim.Status.Sandboxes {
			if other, taken := listed[entry.Name]; taken {
				errs = append(errs, fmt.Errorf("sandbox %s is bound to the claims %s and %s", entry.Name, other, claim.Name))
			}
			listed[entry.Name] = claim.Name
		}
	}
	for name, sandbox := range w.sandboxes {
		owner := sandbox.Annotations[v1alpha1.AnnotationOwner]
		if owner != "" && listed[name] == "" {
			errs = append(errs, fmt.Errorf("sandbox %s names owner %s (claim %v), which does not list it", name, owner, byUID[types.UID(owner)]))
		}
		if locked := sandbox.Annotations[v1alpha1.AnnotationLock] != ""; locked != (listed[name] != "") {
			errs = append(errs, fmt.Errorf("sandbox %s: locked %t, bound to claim %q", name, locked, listed[name]))
		}
	}
	return summary(errs)
}

// keeps compares a claim that was answered with what is stored of it: no less may
// be.
func (w world) keeps(answered *v1alpha1.SandboxClaim) error {
	stored := w.claims[answered.Name]
	if stored == nil {
		return errors.New("is not stored")
	}
	if stored.UID != answered.UID {
		return fmt.Errorf("another one is stored: %s, not %s", stored.UID, answered.UID)
	}
	has := sandboxNames(stored)
	for _, name := range sandboxNames(answered) {
		if !slices.Contains(has, name) {
			return fmt.Errorf("it had sandbox %s, and now %v", name, has)
		}
	}
	return nil
}

func sandboxNames(claim *v1alpha1.SandboxClaim) []string {
	var names []string
	for _, entry := range claim.Status.Sandboxes {
		names = append(names, entry.Name)
	}
	return names
}

// summary joins the first of many errors.
func summary(errs []error) error {
	const most = 10
	if len(errs) > most {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", len(errs)-most))
	}
	return errors.Join(errs...)
}
