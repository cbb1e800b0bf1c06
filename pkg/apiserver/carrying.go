// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/agentsandbox/conversion"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
)

// carrying is admission that loses nothing of what one of our groups can say and another
// cannot. It is shown whole objects, whichever group they are written in, and what a webhook
// of another group changes is merged into them.
type carrying struct {
	admission.Interface
	carrier conversion.Carrier
}

var (
	_ admission.MutationInterface   = carrying{}
	_ admission.ValidationInterface = carrying{}
)

// Admit implements admission.MutationInterface.
func (c carrying) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	mutating, ok := c.Interface.(admission.MutationInterface)
	if !ok {
		return nil
	}
	if isStored(a.GetObject()) && isStored(a.GetOldObject()) && a.GetKind().Group != v1alpha1.GroupName {
		if err := c.carrier.Carry(a.GetObject(), a.GetOldObject(), a.GetKind().GroupVersion()); err != nil {
			return err
		}
	}
	if a.GetOperation() == admission.Update && a.GetSubresource() == "" {
		accesscheck.RecordRequested(ctx, a.GetObject(), a.GetOldObject())
	}
	return mutating.Admit(ctx, a, c.objects(o))
}

// Validate implements admission.ValidationInterface.
func (c carrying) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	validating, ok := c.Interface.(admission.ValidationInterface)
	if !ok {
		return nil
	}
	return validating.Validate(ctx, a, c.objects(o))
}

func (c carrying) objects(o admission.ObjectInterfaces) admission.ObjectInterfaces {
	return carryingObjects{o, carryingConvertor{o.GetObjectConvertor(), c.carrier}}
}

// carryingObjects are the interfaces of a request with another convertor.
type carryingObjects struct {
	admission.ObjectInterfaces
	convertor runtime.ObjectConvertor
}

// GetObjectConvertor implements admission.ObjectInterfaces.
func (o carryingObjects) GetObjectConvertor() runtime.ObjectConvertor { return o.convertor }

// carryingConvertor converts into an object what the version of another can say of it.
type carryingConvertor struct {
	runtime.ObjectConvertor
	carrier conversion.Carrier
}

// Convert implements runtime.ObjectConvertor. Out is empty, or, when a webhook has changed
// in, the object that it was shown.
func (c carryingConvertor) Convert(in, out, scope any) error {
	from, isObject := in.(runtime.Object)
	into, known := out.(runtime.Object)
	if !isObject || !known || !isStored(into) || isStored(from) {
		return c.ObjectConvertor.Convert(in, out, scope)
	}
	version := from.GetObjectKind().GroupVersionKind().GroupVersion()
	if version.Group == "" || version.Group == v1alpha1.GroupName {
		return c.ObjectConvertor.Convert(in, out, scope)
	}
	shown := into.DeepCopyObject()
	hub, err := c.carrier.Scheme.ConvertToVersion(from, schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return err
	}
	if err := c.carrier.Carry(hub, shown, version); err != nil {
		return err
	}
	return assign(into, hub)
}

// isStored reports whether an object is of a kind that is served in several groups, in the
// form in which it is stored.
func isStored(obj runtime.Object) bool {
	switch obj.(type) {
	case *v1alpha1.SandboxClaim, *v1alpha1.SandboxSet, *v1alpha1.SandboxTemplate, *v1alpha1.Sandbox:
		return true
	}
	return false
}

func assign(into, from runtime.Object) error {
	switch to := into.(type) {
	case *v1alpha1.SandboxClaim:
		return assignTo(to, from)
	case *v1alpha1.SandboxSet:
		return assignTo(to, from)
	case *v1alpha1.SandboxTemplate:
		return assignTo(to, from)
	case *v1alpha1.Sandbox:
		return assignTo(to, from)
	}
	return fmt.Errorf("%T is of no kind that is served in several groups", into)
}

func assignTo[T any](to *T, from any) error {
	value, ok := from.(*T)
	if !ok {
		return fmt.Errorf("%T is no %T", from, to)
	}
	*to = *value
	return nil
}
