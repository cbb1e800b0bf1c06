// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// timeout is how long a write waits for the cluster at most.
const timeout = 5 * time.Second

var (
	templatePath = field.NewPath("spec", "template")
	refPath      = field.NewPath("spec", "templateRef")
	patchPath    = field.NewPath("spec", "patch")
	claimsPath   = field.NewPath("spec", "volumeClaimTemplates")
)

// Pods validates pods in a cluster.
type Pods interface {
	Pod(ctx context.Context, pod *unstructured.Unstructured) Result
}

// Options are what a Validator works with.
type Options struct {
	// Lookup finds templates.
	Lookup podtemplate.Lookup
	// Sets lists the sets of a namespace, as of lately.
	Sets func(ctx context.Context, namespace string) ([]*v1alpha1.SandboxSet, error)
	// Pods is nil where there is no cluster.
	Pods Pods
}

// Validator validates the pods of sets and templates.
type Validator struct {
	Options
}

// New returns a Validator.
func New(options Options) *Validator { return &Validator{options} }

// ValidateSet validates the pods of a set, which is valid in itself.
func (v *Validator) ValidateSet(ctx context.Context, set *v1alpha1.SandboxSet) (field.ErrorList, []string) {
	missing := "the set stays empty until it exists"
	if set.Status.UpdateRevision != "" || set.Status.Replicas > 0 {
		missing = "until it exists the set continues with the pod template that it has"
	}
	return v.validate(ctx, &subject{
		namespace: set.Namespace,
		who:       fmt.Sprintf("SandboxSet %s/%s", set.Namespace, set.Name),
		embedded:  &set.Spec.EmbeddedSandboxTemplate,
		volumes:   set.Spec.VolumeClaimTemplates,
		pool:      set.Name,
		patch:     set.Spec.Patch,
		missing:   missing,
		resolve: func(ctx context.Context, patch *runtime.RawExtension) (*podtemplate.Resolved, error) {
			patched := *set
			patched.Spec.Patch = patch
			return podtemplate.ResolveSet(ctx, &patched, v.Lookup)
		},
	})
}

// ValidateTemplate validates the pods of a template, which is valid in itself.
func (v *Validator) ValidateTemplate(ctx context.Context, template *v1alpha1.SandboxTemplate) (field.ErrorList, []string) {
	return v.validate(ctx, &subject{
		namespace: template.Namespace,
		who:       fmt.Sprintf("SandboxTemplate %s/%s", template.Namespace, template.Name),
		embedded:  &template.Spec.EmbeddedSandboxTemplate,
		missing:   "no sandbox can be made from this template until it exists",
		resolve: func(ctx context.Context, _ *runtime.RawExtension) (*podtemplate.Resolved, error) {
			return podtemplate.ResolveTemplate(ctx, template, v.Lookup)
		},
	})
}

// subject is what is validated.
type subject struct {
	namespace, who string
	embedded       *v1alpha1.EmbeddedSandboxTemplate
	// volumes are the volume claim templates that a container must mount.
	volumes []runtime.RawExtension
	// pool is the name of the set, whose sandboxes may get Services; empty for a template.
	pool  string
	patch *runtime.RawExtension
	// missing ends the warning about a reference to what does not exist.
	missing string
	// resolve follows the reference and applies a patch.
	resolve func(ctx context.Context, patch *runtime.RawExtension) (*podtemplate.Resolved, error)
}

func (v *Validator) validate(ctx context.Context, s *subject) (field.ErrorList, []string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if s.embedded.Template != nil {
		result := v.ask(ctx, s, podtemplate.Inline(s.embedded.Template))
		return under(templatePath, result.Causes), about(templatePath, result.Warnings)
	}
	resolved, err := s.resolve(ctx, s.patch)
	if err != nil {
		return s.unresolved(err)
	}
	if errs := validation.ValidatePodTemplate(resolved.Template, patchPath); len(errs) > 0 {
		if v.spoiltByPatch(ctx, s, func(plain *podtemplate.Resolved) bool {
			return len(validation.ValidatePodTemplate(plain.Template, nil)) == 0
		}) {
			return errs, nil
		}
		return s.badReference(moved(errs, patchPath, field.NewPath("template"))), nil
	}
	if errs := validation.ValidateMounted(resolved.Template, s.volumes, claimsPath); len(errs) > 0 {
		return errs, nil
	}
	if s.pool != "" {
		if err := resolved.CheckService(s.pool); err != nil {
			return field.ErrorList{field.Invalid(refPath, s.embedded.TemplateRef.Name, "has service: true, but "+err.Error())}, nil
		}
	}
	return v.validateResolved(ctx, s, resolved)
}

// validateResolved asks the cluster about a template at the end of references.
func (v *Validator) validateResolved(ctx context.Context, s *subject, resolved *podtemplate.Resolved) (field.ErrorList, []string) {
	result := v.ask(ctx, s, resolved)
	at := refPath
	if s.patch != nil {
		at = patchPath
	}
	if len(result.Causes) == 0 {
		return nil, about(at, result.Warnings)
	}
	if v.spoiltByPatch(ctx, s, func(plain *podtemplate.Resolved) bool { return len(v.ask(ctx, s, plain).Causes) == 0 }) {
		return under(patchPath, result.Causes), about(at, result.Warnings)
	}
	return s.badReference(under(field.NewPath("template"), result.Causes)), about(at, result.Warnings)
}

// spoiltByPatch reports whether a bad template is good without its patch.
func (v *Validator) spoiltByPatch(ctx context.Context, s *subject, good func(*podtemplate.Resolved) bool) bool {
	if s.patch == nil {
		return false
	}
	plain, err := s.resolve(ctx, nil)
	return err == nil && good(plain)
}

// ask makes a pod of a template with its volumes and asks the cluster about it. The result does
// not depend on the owner of the template, so it is cached for all owners of the same template.
func (v *Validator) ask(ctx context.Context, s *subject, resolved *podtemplate.Resolved) Result {
	if v.Pods == nil {
		return Result{}
	}
	sandbox := &v1alpha1.Sandbox{}
	sandbox.Namespace, sandbox.Name = s.namespace, dryRunPrefix[:len(dryRunPrefix)-1]
	sandbox.Spec.Template = resolved.Template
	sandbox.Spec.VolumeClaimTemplates = resolved.WithVolumes(s.embedded.VolumeClaimTemplates)
	pod, err := podtemplate.Pod(sandbox, "dry-run")
	if err != nil {
		return Result{Warnings: []string{"no pod can be made from it: " + err.Error()}}
	}
	pod.SetOwnerReferences(nil) // there is no such sandbox
	pod.SetName("")
	pod.SetGenerateName(dryRunPrefix)
	return v.Pods.Pod(ctx, pod)
}

// unresolved returns the errors or warnings about a reference that could not be
// followed.
func (s *subject) unresolved(err error) (field.ErrorList, []string) {
	why := strings.TrimPrefix(err.Error(), s.who+": ")
	name := s.embedded.TemplateRef.Name
	switch {
	case errors.Is(err, podtemplate.ErrTemplateNotFound):
		return nil, []string{fmt.Sprintf("%s: %s; %s", refPath, why, s.missing)}
	case errors.Is(err, podtemplate.ErrPatch):
		return field.ErrorList{field.Invalid(patchPath, field.OmitValueType{}, why)}, nil
	case errors.Is(err, podtemplate.ErrTemplateCycle), errors.Is(err, podtemplate.ErrTemplateKind),
		errors.Is(err, podtemplate.ErrNoTemplate), errors.Is(err, podtemplate.ErrVolumes):
		return field.ErrorList{field.Invalid(refPath, name, why)}, nil
	}
	return nil, []string{fmt.Sprintf("%s: could not be looked up, and is not checked: %s", refPath, why)}
}

// badReference blames a reference for what is wrong with the pod template that it
// leads to.
func (s *subject) badReference(errs field.ErrorList) field.ErrorList {
	return field.ErrorList{field.Invalid(refPath, s.embedded.TemplateRef.Name,
		"leads to an invalid pod template: "+errs.ToAggregate().Error())}
}
