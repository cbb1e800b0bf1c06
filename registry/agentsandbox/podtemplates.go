// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package agentsandbox

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/registry/sandbox/accesscheck"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// A sandbox of a pool is stored with a reference to the template of the pool. In the API of
// agent-sandbox each sandbox has a podTemplate, and typed clients, which cannot omit its
// containers, write back what they have read. So this API shows a sandbox with the template that
// it refers to, and a write that does not change that template keeps the reference.

// podTemplates shows sandboxes with the pod templates that they refer to.
type podTemplates struct {
	cache *podtemplate.Cache
	// lookup reads the store if the cache has no template; it is for single sandboxes.
	// cachedLookup only reads the cache; it is for lists and watches.
	lookup, cachedLookup podtemplate.Lookup
	// events are sandboxes as watches have shown them.
	events *cachingSandboxes
}

func newPodTemplates(lookup, cachedLookup podtemplate.Lookup) *podTemplates {
	return &podTemplates{
		cache: podtemplate.NewCache(), lookup: sandboxTemplatesOnly{lookup}, cachedLookup: sandboxTemplatesOnly{cachedLookup}, events: newCachingSandboxes(),
	}
}

type withoutKey struct{}

// WithoutPodTemplates returns a context in which lists and watches leave the pod templates out
// that sandboxes refer to, because the client asks for columns or for metadata.
func WithoutPodTemplates(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutKey{}, true)
}

func withoutPodTemplates(ctx context.Context) bool {
	without, _ := ctx.Value(withoutKey{}).(bool)
	return without
}

// sandboxTemplatesOnly finds no PodTemplates, so that reading sandboxes sends no requests to the
// cluster.
type sandboxTemplatesOnly struct{ podtemplate.Lookup }

// PodTemplate implements podtemplate.Lookup.
func (sandboxTemplatesOnly) PodTemplate(context.Context, string, string) (*corev1.PodTemplate, error) {
	return nil, nil
}

// refers reports whether a sandbox has its template by reference alone.
func refers(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Spec.Template == nil && sandbox.Spec.TemplateRef != nil
}

// of returns the template that a sandbox refers to; nil if it does not exist or is not valid.
func (p *podTemplates) of(ctx context.Context, sandbox *v1alpha1.Sandbox, lookup podtemplate.Lookup) *runtime.RawExtension {
	resolved, err := p.cache.ResolveSandbox(ctx, sandbox, lookup)
	if err != nil {
		return nil // its status says why, and it is shown as it is
	}
	return resolved.Template
}

// shown returns a sandbox with the template that it refers to. It returns a shallow copy, because
// the argument may be in a cache.
func (p *podTemplates) shown(ctx context.Context, sandbox *v1alpha1.Sandbox) *v1alpha1.Sandbox {
	if !refers(sandbox) {
		return sandbox
	}
	return with(sandbox, p.of(ctx, sandbox, p.lookup))
}

// with returns a sandbox with a template, which shares all else.
func with(sandbox *v1alpha1.Sandbox, template *runtime.RawExtension) *v1alpha1.Sandbox {
	shown := *sandbox
	shown.Spec.Template = template
	return &shown
}

// show adds the templates to an answer: to a sandbox or to a list of sandboxes. It returns any
// other answer as it is.
func (p *podTemplates) show(ctx context.Context, answer runtime.Object) runtime.Object {
	switch answer := answer.(type) {
	case *v1alpha1.Sandbox:
		return p.shown(ctx, answer)
	case *v1alpha1.SandboxList:
		if withoutPodTemplates(ctx) {
			return answer
		}
		known := map[podTemplateKey]*runtime.RawExtension{}
		for i := range answer.Items {
			sandbox := &answer.Items[i]
			if !refers(sandbox) {
				continue
			}
			key := podTemplateKey{sandbox.Namespace, sandbox.Labels[v1alpha1.LabelTemplateHash], *sandbox.Spec.TemplateRef}
			template, ok := known[key]
			if !ok {
				template = p.of(ctx, sandbox, p.cachedLookup)
				known[key] = template
			}
			sandbox.Spec.Template = template
		}
	}
	return answer
}

// podTemplateKey is what the template of a sandbox depends on within one list. It is the same for
// the sandboxes of one revision of a pool.
type podTemplateKey struct {
	namespace, revision string
	ref                 v1alpha1.SandboxTemplateRef
}

// showEvents returns a watch whose sandboxes have the templates that they refer to. Watches
// share the objects and their encodings.
func (p *podTemplates) showEvents(ctx context.Context, events watch.Interface) watch.Interface {
	if withoutPodTemplates(ctx) {
		return events
	}
	return base.TransformEvents(events, func(event watch.Event) watch.Event {
		obj := event.Object
		if cached, ok := obj.(runtime.CacheableObject); ok {
			obj = cached.GetObject()
		}
		if sandbox, ok := obj.(*v1alpha1.Sandbox); ok && refers(sandbox) {
			if template := p.of(ctx, sandbox, p.cachedLookup); template != nil {
				event.Object = p.events.get(event.Type, sandbox, template)
			}
		}
		return event
	})
}

// updating returns an update that starts from the sandbox as it is shown, and that removes the
// template again if it has not changed.
func (p *podTemplates) updating(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo {
	return &shownUpdate{base.KeepStoredTemplates(info), p}
}

type shownUpdate struct {
	rest.UpdatedObjectInfo
	templates *podTemplates
}

var podTemplatePath = fieldpath.MakePathOrDie("spec", "podTemplate")

// emptyTemplate is what a typed client sends back for a sandbox that was shown without a template.
// It has no containers, so no client can mean it as a change.
var emptyTemplate = &runtime.RawExtension{Raw: []byte(`{}`)}

// UpdatedObject implements rest.UpdatedObjectInfo.
func (u *shownUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	stored, ok := old.(*v1alpha1.Sandbox)
	if !ok || !refers(stored) {
		return u.UpdatedObjectInfo.UpdatedObject(ctx, old)
	}
	shown := u.templates.shown(ctx, stored)
	end, err := base.BeginUpdate(ctx, shown) // it may be much larger than what is stored
	if err != nil {
		return nil, err
	}
	defer end()
	updated, err := u.UpdatedObjectInfo.UpdatedObject(ctx, shown)
	if err != nil {
		return nil, err
	}
	sandbox, ok := updated.(*v1alpha1.Sandbox)
	if !ok || sandbox.Spec.Template == nil {
		return updated, nil
	}
	// The client may have read it when the lookup did not find the template.
	same := v1alpha1.SamePodTemplate(sandbox.Spec.Template, emptyTemplate) ||
		shown.Spec.Template != nil && v1alpha1.SamePodTemplate(sandbox.Spec.Template, shown.Spec.Template)
	if !same {
		return sandbox, nil
	}
	sandbox.Spec.Template = nil
	// The first apply to an object without managed fields adds the manager before-first-apply,
	// which owns all fields that it sees, also the template.
	if err := base.DisownUpdates(sandbox, v1alpha1.AgentsGroup, podTemplatePath); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return sandbox, nil
}

// sandboxREST serves sandboxes with the templates that they refer to.
type sandboxREST struct {
	*accesscheck.REST
	templates *podTemplates
}

// Get returns a sandbox.
func (r *sandboxREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.REST.Get(ctx, name, options)
	return r.templates.show(ctx, obj), err
}

// List returns sandboxes.
func (r *sandboxREST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	obj, err := r.REST.List(ctx, options)
	return r.templates.show(ctx, obj), err
}

// Watch watches sandboxes.
func (r *sandboxREST) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	events, err := r.REST.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return r.templates.showEvents(ctx, events), nil
}

// Update changes a sandbox, or, for server-side apply, creates it.
func (r *sandboxREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	obj, created, err := r.REST.Update(ctx, name, r.templates.updating(objInfo), createValidation, updateValidation, forceAllowCreate, options)
	return r.templates.show(ctx, obj), created, err
}

// Delete deletes a sandbox.
func (r *sandboxREST) Delete(ctx context.Context, name string, deleteValidation rest.ValidateObjectFunc,
	options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	obj, gone, err := r.REST.Delete(ctx, name, deleteValidation, options)
	return r.templates.show(ctx, obj), gone, err
}

// DeleteCollection deletes the sandboxes that are selected.
func (r *sandboxREST) DeleteCollection(ctx context.Context, deleteValidation rest.ValidateObjectFunc,
	options *metav1.DeleteOptions, listOptions *metainternalversion.ListOptions) (runtime.Object, error) {
	obj, err := r.REST.DeleteCollection(ctx, deleteValidation, options, listOptions)
	return r.templates.show(ctx, obj), err
}

// sandboxStatusREST serves the status of sandboxes with the templates that they refer to.
type sandboxStatusREST struct {
	*base.StatusREST
	templates *podTemplates
}

// Get returns a sandbox.
func (r *sandboxStatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.StatusREST.Get(ctx, name, options)
	return r.templates.show(ctx, obj), err
}

// Update changes the status of a sandbox.
func (r *sandboxStatusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	obj, created, err := r.StatusREST.Update(ctx, name, objInfo, createValidation, updateValidation, forceAllowCreate, options)
	return r.templates.show(ctx, obj), created, err
}
