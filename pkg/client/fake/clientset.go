// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	generated "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/fake"
)

var (
	claimsResource    = v1alpha1.SchemeGroupVersion.WithResource("sandboxclaims")
	templatesResource = v1alpha1.SchemeGroupVersion.WithResource("sandboxtemplates")
	setsResource      = v1alpha1.SchemeGroupVersion.WithResource("sandboxsets")
	sandboxesResource = v1alpha1.SchemeGroupVersion.WithResource("sandboxes")
)

// Clientset is the generated fake clientset with claims that bind. It is safe for
// concurrent use.
type Clientset struct {
	*generated.Clientset

	// store has the objects. Reactors run under the lock of Fake, so what one does is seen
	// as a whole.
	store store
}

// NewClientset returns a clientset with some objects. Those without a UID get one. A claim
// among them is taken as it is, and served when something changes, if it is Claiming.
// Objects that cannot be stored, such as two of one name, are a panic, as in client-go.
func NewClientset(objects ...runtime.Object) *Clientset {
	// The tracker that knows managed fields guesses resources from kinds, and takes
	// those of sandboxes for "sandboxs".
	c := &Clientset{Clientset: generated.NewSimpleClientset()}
	c.store = store{c.Tracker()}
	for _, obj := range objects {
		if err := c.store.add(obj.DeepCopyObject()); err != nil {
			panic(err)
		}
	}
	c.PrependReactor("*", "*", c.change)
	c.PrependReactor("delete", "sandboxclaims", c.deleteClaim)
	c.PrependReactor("create", "sandboxclaims", c.createClaim)
	return c
}

// identify gives an object what every stored one has.
func identify(object metav1.Object) {
	if object.GetName() == "" && object.GetGenerateName() != "" {
		object.SetName(object.GetGenerateName() + rand.String(5))
	}
	if object.GetUID() == "" {
		object.SetUID(uuid.NewUUID())
	}
	if object.GetGeneration() == 0 {
		object.SetGeneration(1)
	}
	if stamp := object.GetCreationTimestamp(); stamp.IsZero() {
		object.SetCreationTimestamp(metav1.Now())
	}
}

// change lets the generated fake do what it does, and serves the claims that wait.
func (c *Clientset) change(action testing.Action) (bool, runtime.Object, error) {
	shortened := false
	switch action := action.(type) {
	case testing.CreateActionImpl:
		if object, err := meta.Accessor(action.Object); err == nil && action.Subresource == "" {
			identify(object)
		}
	case testing.UpdateActionImpl, testing.PatchActionImpl, testing.DeleteActionImpl:
	default:
		return false, nil, nil
	}
	before := c.claimTimeout(action)
	_, obj, err := testing.ObjectReaction(c.Tracker())(action)
	if err != nil {
		return true, obj, err
	}
	if claim, ok := obj.(*v1alpha1.SandboxClaim); ok {
		after := claim.Spec.ClaimTimeout
		shortened = before != nil && after != nil && after.Duration < before.Duration
		if shortened && claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
			err = c.store.timeOut(claim)
			obj = claim
		}
	}
	if err == nil {
		err = c.store.settle(action.GetNamespace())
	}
	return true, obj, err
}

// claimTimeout is that of the claim which an action is about, before it.
func (c *Clientset) claimTimeout(action testing.Action) *metav1.Duration {
	named, ok := action.(interface{ GetName() string })
	if update, isUpdate := action.(testing.UpdateActionImpl); isUpdate {
		object, err := meta.Accessor(update.Object)
		named, ok = nil, false
		if err == nil {
			named, ok = object, true
		}
	}
	if !ok || action.GetResource() != claimsResource {
		return nil
	}
	claim, err := c.store.claim(action.GetNamespace(), named.GetName())
	if err != nil {
		return nil
	}
	return claim.Spec.ClaimTimeout
}

// Fill puts n available sandboxes into the pool of a set, and serves the claims that wait
// for them. It returns their names.
func (c *Clientset) Fill(namespace, set string, n int) ([]string, error) {
	c.Lock()
	defer c.Unlock()
	owner, err := c.Tracker().Get(setsResource, namespace, set)
	if err != nil {
		return nil, err
	}
	var names []string
	for range n {
		sandbox := pooled(owner.(*v1alpha1.SandboxSet))
		if err := c.Tracker().Create(sandboxesResource, sandbox, namespace); err != nil {
			return names, err
		}
		names = append(names, sandbox.Name)
	}
	return names, c.store.settle(namespace)
}

// TimeOut ends a claim that waits as if its claimTimeout were over: it keeps what it has.
func (c *Clientset) TimeOut(namespace, name string) error {
	c.Lock()
	defer c.Unlock()
	claim, err := c.store.claim(namespace, name)
	if err != nil {
		return err
	}
	if claim.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
		return fmt.Errorf("claim %s/%s is Completed", namespace, name)
	}
	return c.store.timeOut(claim)
}
