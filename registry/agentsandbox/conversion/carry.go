// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conversion serves the objects of one store in the words of a second group. Types are
// converted where requests are decoded and answers are encoded; what is here lets what the
// second group cannot say survive a write through it, and lets errors name what the client
// has written.
package conversion

import (
	"fmt"
	"reflect"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Carrier keeps what a write in another version cannot say.
type Carrier struct {
	// Scheme converts between the versions.
	Scheme *runtime.Scheme
}

// Carry gives updated, which was written in a version that cannot say all that stored says,
// what it could not say. It is a three-way merge, with stored as that version shows it in the
// middle: what differs from there the writer has changed, and all else is as it is stored.
//
//	stored         replicas 3, patch P     shown as   replicas 3
//	updated        replicas 5              becomes    replicas 5, patch P
//
// Metadata is all the same in every version, and left alone. To carry what was carried
// already changes nothing.
func (c Carrier) Carry(updated, stored runtime.Object, version schema.GroupVersion) error {
	seen, err := c.asSeen(stored, version)
	if err != nil {
		return err
	}
	into, from, between := reflect.ValueOf(updated).Elem(), reflect.ValueOf(stored.DeepCopyObject()).Elem(), reflect.ValueOf(seen).Elem()
	if into.Type() != from.Type() {
		return fmt.Errorf("keeping what version %s cannot say: %T is no %T", version, updated, stored)
	}
	wrote := reflect.New(into.Type())
	wrote.Elem().Set(into)
	for _, name := range []string{"Spec", "Status"} {
		if field := into.FieldByName(name); field.IsValid() {
			field.Set(merged(from.FieldByName(name), between.FieldByName(name), field))
		}
	}
	settle(updated, stored, wrote.Interface())
	return nil
}

// asSeen is a stored object as it comes back from who reads it in a version and writes it
// unchanged.
func (c Carrier) asSeen(stored runtime.Object, version schema.GroupVersion) (runtime.Object, error) {
	external, err := c.Scheme.ConvertToVersion(stored.DeepCopyObject(), version)
	if err != nil {
		return nil, fmt.Errorf("showing %T in version %s: %w", stored, version, err)
	}
	c.Scheme.Default(external)
	seen, err := c.Scheme.ConvertToVersion(external, schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, fmt.Errorf("reading %T from version %s: %w", stored, version, err)
	}
	return seen, nil
}

var (
	condition = reflect.TypeFor[metav1.Condition]()
	instant   = reflect.TypeFor[time.Time]()
)

// merged returns updated where it differs from seen, and stored where it does not.
func merged(stored, seen, updated reflect.Value) reflect.Value {
	if apiequality.Semantic.DeepEqual(seen.Interface(), updated.Interface()) {
		return stored
	}
	switch updated.Kind() {
	case reflect.Struct:
		if parts := mergedFields(stored, seen, updated); parts.IsValid() {
			return parts
		}
	case reflect.Pointer:
		if stored.IsNil() || seen.IsNil() || updated.IsNil() || updated.Elem().Kind() != reflect.Struct {
			return updated
		}
		all := reflect.New(updated.Type().Elem())
		all.Elem().Set(merged(stored.Elem(), seen.Elem(), updated.Elem()))
		return all
	case reflect.Slice:
		if updated.Type().Elem() == condition {
			return reflect.ValueOf(mergedConditions(
				stored.Interface().([]metav1.Condition), seen.Interface().([]metav1.Condition), updated.Interface().([]metav1.Condition)))
		}
	}
	return updated
}

// mergedFields merges a struct field by field. One that hides some is a value in itself, such
// as a time, and gives nothing.
func mergedFields(stored, seen, updated reflect.Value) reflect.Value {
	all := reflect.New(updated.Type()).Elem()
	for i := range updated.NumField() {
		if field := updated.Type().Field(i); !field.IsExported() || field.Type == instant {
			return reflect.Value{}
		}
		all.Field(i).Set(merged(stored.Field(i), seen.Field(i), updated.Field(i)))
	}
	return all
}

// mergedConditions keeps the conditions that the version does not show.
func mergedConditions(stored, seen, updated []metav1.Condition) []metav1.Condition {
	shown, left := map[string]bool{}, map[string]*metav1.Condition{}
	for i := range seen {
		shown[seen[i].Type] = true
	}
	for i := range updated {
		left[updated[i].Type] = &updated[i]
	}
	var all []metav1.Condition
	for _, was := range stored {
		is := left[was.Type]
		switch {
		case is != nil:
			all = append(all, *is)
			delete(left, was.Type)
		case !shown[was.Type]:
			all = append(all, was)
		}
	}
	for _, is := range updated {
		if left[is.Type] != nil {
			all = append(all, is)
		}
	}
	return all
}

// settle takes away what stands in the way of what the writer has set, where the version has
// one field for what are several here. wrote is what was written before it was merged.
func settle(updated, stored runtime.Object, wrote any) {
	switch is := updated.(type) {
	case *v1alpha1.SandboxClaim:
		settleSource(&is.Spec, &stored.(*v1alpha1.SandboxClaim).Spec, &wrote.(*v1alpha1.SandboxClaim).Spec)
	case *v1alpha1.SandboxSet:
		settleTemplate(&is.Spec.EmbeddedSandboxTemplate, &stored.(*v1alpha1.SandboxSet).Spec.EmbeddedSandboxTemplate)
	case *v1alpha1.SandboxTemplate:
		was := stored.(*v1alpha1.SandboxTemplate)
		settleTemplate(&is.Spec.EmbeddedSandboxTemplate, &was.Spec.EmbeddedSandboxTemplate)
		// Without a management it depends on the policy whether that is managed.
		if (is.Spec.NetworkPolicy == nil) != (was.Spec.NetworkPolicy == nil) && is.Spec.NetworkPolicyManagement == "" {
			is.Spec.NetworkPolicyManagement = wrote.(*v1alpha1.SandboxTemplate).Spec.NetworkPolicyManagement
		}
	case *v1alpha1.Sandbox:
		settleTemplate(&is.Spec.EmbeddedSandboxTemplate, &stored.(*v1alpha1.Sandbox).Spec.EmbeddedSandboxTemplate)
	default:
		utilruntime.HandleError(fmt.Errorf("%T is of no kind that is served in two groups", updated))
	}
}

// settleSource lets what the writer says of where sandboxes come from take the place of a
// templateName, which is shown as a warmPoolRef.
func settleSource(is, was, wrote *v1alpha1.SandboxClaimSpec) {
	switch {
	case was.WarmPoolRef != nil || was.TemplateName == "":
	case is.WarmPoolRef != nil:
		is.TemplateName = ""
	case is.SandboxTemplateRef != nil && was.SandboxTemplateRef == nil:
		is.TemplateName, is.WarmPoolRef = "", wrote.WarmPoolRef
	}
}

// settleTemplate lets a template that is named take the place of one that is written out, and
// the other way round. A name alone is that of a SandboxTemplate.
func settleTemplate(is, was *v1alpha1.EmbeddedSandboxTemplate) {
	named := is.TemplateRef != nil && (was.TemplateRef == nil || was.TemplateRef.Name != is.TemplateRef.Name)
	switch {
	case named && is.Template != nil && was.Template != nil:
		is.Template, is.VolumeClaimTemplates = nil, nil
	case named && was.TemplateRef != nil:
		is.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: is.TemplateRef.Name}
	case is.Template != nil && was.Template == nil:
		is.TemplateRef = nil
	}
}
