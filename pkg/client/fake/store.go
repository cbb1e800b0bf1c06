// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// store reads and writes the objects of a clientset, past its reactors.
type store struct{ tracker testing.ObjectTracker }

// add stores an object that is there from the beginning.
func (s store) add(obj runtime.Object) error {
	object, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	identify(object)
	switch obj.(type) {
	case *v1alpha1.SandboxClaim:
		return s.tracker.Create(claimsResource, obj, object.GetNamespace())
	case *v1alpha1.SandboxSet:
		return s.tracker.Create(setsResource, obj, object.GetNamespace())
	case *v1alpha1.SandboxTemplate:
		return s.tracker.Create(templatesResource, obj, object.GetNamespace())
	case *v1alpha1.Sandbox:
		return s.tracker.Create(sandboxesResource, obj, object.GetNamespace())
	}
	return fmt.Errorf("a %T is not of this API", obj)
}

func (s store) claim(namespace, name string) (*v1alpha1.SandboxClaim, error) {
	obj, err := s.tracker.Get(claimsResource, namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.(*v1alpha1.SandboxClaim).DeepCopy(), nil
}

// sandboxes returns those of a namespace for which wanted is true, the oldest first.
func (s store) sandboxes(namespace string, wanted func(*v1alpha1.Sandbox) bool) ([]*v1alpha1.Sandbox, error) {
	obj, err := s.tracker.List(sandboxesResource, v1alpha1.SchemeGroupVersion.WithKind("Sandbox"), namespace)
	if err != nil {
		return nil, err
	}
	var found []*v1alpha1.Sandbox
	for _, sandbox := range obj.(*v1alpha1.SandboxList).Items {
		if wanted(&sandbox) {
			found = append(found, sandbox.DeepCopy())
		}
	}
	slices.SortFunc(found, func(a, b *v1alpha1.Sandbox) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

func (s store) sets(namespace string) ([]v1alpha1.SandboxSet, error) {
	obj, err := s.tracker.List(setsResource, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"), namespace)
	if err != nil {
		return nil, err
	}
	return obj.(*v1alpha1.SandboxSetList).DeepCopy().Items, nil
}

// settle serves the claims of a namespace that wait, and counts its pools.
func (s store) settle(namespace string) error {
	obj, err := s.tracker.List(claimsResource, v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"), namespace)
	if err != nil {
		return err
	}
	waiting := obj.(*v1alpha1.SandboxClaimList).DeepCopy().Items
	waiting = slices.DeleteFunc(waiting, func(c v1alpha1.SandboxClaim) bool {
		return c.Status.Phase != v1alpha1.SandboxClaimPhaseClaiming
	})
	slices.SortFunc(waiting, func(a, b v1alpha1.SandboxClaim) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for i := range waiting {
		claim := &waiting[i]
		had := claim.Status.DeepCopy()
		taken, err := s.serve(claim, nil)
		if err != nil {
			return err
		}
		if had.ClaimedReplicas == claim.Status.ClaimedReplicas && had.Message == claim.Status.Message && had.Phase == claim.Status.Phase {
			continue
		}
		if err := s.write(taken); err != nil {
			return err
		}
		if err := s.tracker.Update(claimsResource, claim, namespace); err != nil {
			return err
		}
	}
	return s.count(namespace)
}

// write stores sandboxes: those that are there, and fresh ones.
func (s store) write(sandboxes []*v1alpha1.Sandbox) error {
	for _, sandbox := range sandboxes {
		var err error
		if _, getErr := s.tracker.Get(sandboxesResource, sandbox.Namespace, sandbox.Name); getErr == nil {
			err = s.tracker.Update(sandboxesResource, sandbox, sandbox.Namespace)
		} else {
			err = s.tracker.Create(sandboxesResource, sandbox, sandbox.Namespace)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// count writes how many sandboxes the pools of a namespace have.
func (s store) count(namespace string) error {
	all, err := s.sets(namespace)
	if err != nil {
		return err
	}
	for i := range all {
		set := &all[i]
		members, err := s.sandboxes(namespace, func(sandbox *v1alpha1.Sandbox) bool { return metav1.IsControlledBy(sandbox, set) })
		if err != nil {
			return err
		}
		had := set.Status
		set.Status.ObservedGeneration = set.Generation
		set.Status.Replicas, set.Status.AvailableReplicas = int32(len(members)), 0
		for _, sandbox := range members {
			if available(sandbox) {
				set.Status.AvailableReplicas++
			}
		}
		if had.Replicas == set.Status.Replicas && had.AvailableReplicas == set.Status.AvailableReplicas && had.ObservedGeneration == set.Status.ObservedGeneration {
			continue
		}
		if err := s.tracker.Update(setsResource, set, namespace); err != nil {
			return err
		}
	}
	return nil
}
