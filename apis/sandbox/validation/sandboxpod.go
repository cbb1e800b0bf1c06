// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// ChangesPod reports whether an update chooses what the next pod of a sandbox runs: it changes
// more of the pod template than its metadata, or a key in that which platforms act on. Such a
// change requires more rights: see rights.ToChangePod.
func ChangesPod(sandbox, old *v1alpha1.Sandbox) bool {
	is, was := sandbox.Spec.Template, old.Spec.Template
	if is != nil && was != nil && bytes.Equal(is.Raw, was.Raw) {
		return false
	}
	return !sameTemplate(is, was) || !maps.Equal(platformMetadata(is), platformMetadata(was))
}

// platformMetadata returns the labels and annotations of a pod template that platforms act on.
// The keys say which of the two they are.
func platformMetadata(raw *runtime.RawExtension) map[string]string {
	if raw == nil {
		return nil
	}
	template, err := v1alpha1.PodTemplate(raw)
	if err != nil {
		return nil // it is refused, or was stored by the server
	}
	found := map[string]string{}
	for kind, metadata := range map[string]map[string]string{"label ": template.Labels, "annotation ": template.Annotations} {
		for key, value := range metadata {
			if v1alpha1.IsPlatformKey(key) {
				found[kind+key] = value
			}
		}
	}
	return found
}

// templateMayChange reports whether the pod template of a sandbox may change: in
// agent-sandbox, the next pod is created from it. It may not change while the sandbox is in a pool,
// or has the annotation inplace-update, because then the claim sets the template.
func templateMayChange(old *v1alpha1.Sandbox) bool {
	return v1alpha1.OfAgentSandbox(old) && !v1alpha1.IsInPool(old) && old.Annotations[v1alpha1.AnnotationInplaceUpdate] == ""
}

// validateUnchanged refuses changes of what a pod cannot change while it runs. The
// metadata of the template may change: it is brought to the pod.
func validateUnchanged(embedded, old *v1alpha1.EmbeddedSandboxTemplate, path *field.Path, templateMayChange bool) field.ErrorList {
	var errs field.ErrorList
	if !reflect.DeepEqual(embedded.TemplateRef, old.TemplateRef) {
		errs = append(errs, field.Forbidden(path.Child("templateRef"), "is immutable"))
	}
	mayChange := templateMayChange && embedded.Template != nil && old.Template != nil
	if !mayChange && !sameTemplate(embedded.Template, old.Template) {
		errs = append(errs, field.Forbidden(path.Child("template"), unservedMessage(
			"changing more of a sandbox's template than its metadata; change the SandboxSet, or make a new sandbox")))
	}
	if !sameClaims(embedded, old) {
		errs = append(errs, field.Forbidden(path.Child("volumeClaimTemplates"), "volumeClaimTemplates is immutable"))
	}
	return errs
}

// sameTemplate reports whether two pod templates differ in their metadata at most.
func sameTemplate(a, b *runtime.RawExtension) bool {
	if a == nil || b == nil {
		return a == b
	}
	if bytes.Equal(a.Raw, b.Raw) {
		return true
	}
	x, y := withoutMetadata(a), withoutMetadata(b)
	return x != nil && y != nil && reflect.DeepEqual(x, y)
}

// withoutMetadata returns the normalized form of a pod template without its metadata; nil if
// the template does not decode.
func withoutMetadata(raw *runtime.RawExtension) map[string]any {
	normalized, err := v1alpha1.NormalizedPodTemplate(raw)
	if err != nil {
		return nil
	}
	template, ok := normalized.(map[string]any)
	if !ok {
		return nil
	}
	delete(template, "metadata")
	return template
}
