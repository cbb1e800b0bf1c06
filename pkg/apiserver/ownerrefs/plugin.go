// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerrefs is the admission plugin OwnerReferencesPermissionEnforcement for
// objects that kube-apiserver does not store. The one of Kubernetes is in kube-apiserver
// alone, which does not ask it about what an aggregated server serves.
package ownerrefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/utils/ptr"
)

// PluginName is the name of the plugin, as in kube-apiserver.
const PluginName = "OwnerReferencesPermissionEnforcement"

// AddTo adds the plugin to those that can be enabled. As in kube-apiserver it is off by
// default.
func AddTo(o *genericoptions.AdmissionOptions) {
	o.Plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}, nil
	})
	o.RecommendedPluginOrder = append(o.RecommendedPluginOrder, PluginName)
	o.DefaultOffPlugins.Insert(PluginName)
}

type byServer struct{}

// ByServer marks the admission of an object whose owner references the server itself has
// set, of which the user who asks need not have any right.
func ByServer(ctx context.Context) context.Context { return context.WithValue(ctx, byServer{}, true) }

// plugin lets owner references of an object be changed by who may delete it, and an owner
// be made to wait for the object's deletion by who may update the owner's finalizers.
type plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
	mapper     meta.RESTMapper
}

var (
	_ admission.ValidationInterface            = &plugin{}
	_ initializer.WantsUnconditionalAuthorizer = &plugin{}
	_ initializer.WantsRESTMapper              = &plugin{}
)

// SetUnconditionalAuthorizer implements initializer.WantsUnconditionalAuthorizer.
func (p *plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authorizer = a }

// SetRESTMapper implements initializer.WantsRESTMapper.
func (p *plugin) SetRESTMapper(m meta.RESTMapper) { p.mapper = m }

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.authorizer == nil || p.mapper == nil {
		return errors.New("an authorizer and a RESTMapper are needed")
	}
	return nil
}

// Validate implements admission.ValidationInterface. The rules and messages are those of
// kube-apiserver.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	refs, old := ownersOf(a.GetObject()), ownersOf(a.GetOldObject())
	if ctx.Value(byServer{}) != nil || len(refs)+len(old) == 0 || apiequality.Semantic.DeepEqual(refs, old) {
		return nil
	}
	about := authorizer.AttributesRecord{
		User: a.GetUserInfo(), Namespace: a.GetNamespace(), ResourceRequest: true, Verb: "delete",
		APIGroup: a.GetResource().Group, APIVersion: a.GetResource().Version, Resource: a.GetResource().Resource,
		Subresource: a.GetSubresource(), Name: a.GetName(),
	}
	if a.GetOperation() != admission.Create { // who creates it may as well not have
		if err := p.require(ctx, a, &about, "cannot set an ownerRef on a resource you can't delete"); err != nil {
			return err
		}
	}
	for _, ref := range refs {
		blocksAlready := func(was metav1.OwnerReference) bool { return was.UID == ref.UID && blocks(was) }
		if !blocks(ref) || slices.ContainsFunc(old, blocksAlready) {
			continue
		}
		if err := p.mayFinalize(ctx, a, &ref); err != nil {
			return err
		}
	}
	return nil
}

// mayFinalize fails if the user may not update the finalizers of an owner.
func (p *plugin) mayFinalize(ctx context.Context, a admission.Attributes, ref *metav1.OwnerReference) error {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	var mappings []*meta.RESTMapping
	if err == nil {
		mappings, err = p.mapper.RESTMappings(schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, gv.Version)
	}
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf(
			"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w", ref.APIVersion, ref.Kind, err))
	}
	for _, mapping := range mappings {
		about := authorizer.AttributesRecord{
			User: a.GetUserInfo(), ResourceRequest: true, Verb: "update",
			APIGroup: mapping.Resource.Group, APIVersion: mapping.Resource.Version, Resource: mapping.Resource.Resource,
			Subresource: "finalizers", Name: ref.Name,
		}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			about.Namespace = a.GetNamespace()
		}
		const detail = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
		if err := p.require(ctx, a, &about, detail); err != nil {
			return err
		}
	}
	return nil
}

func (p *plugin) require(ctx context.Context, a admission.Attributes, about *authorizer.AttributesRecord, detail string) error {
	decision, reason, err := p.authorizer.Authorize(ctx, about)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("%s: %w", detail, err))
	}
	return admission.NewForbidden(a, fmt.Errorf("%s: %s", detail, reason))
}

func blocks(ref metav1.OwnerReference) bool { return ptr.Deref(ref.BlockOwnerDeletion, false) }

// ownersOf returns the owner references of an object; none of what has no metadata.
func ownersOf(obj runtime.Object) []metav1.OwnerReference {
	if obj == nil {
		return nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return accessor.GetOwnerReferences()
}
