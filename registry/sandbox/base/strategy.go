// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package base holds what the storages of all kinds of the group have in common, so
// that the package of a kind reads as what is special to it: strategies, the status
// subresource, tables, and raw JSON in one canonical form.
package base

import (
	"context"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// Strategy answers the questions to which every kind of the group gives the same
// answer. The strategies of the kinds embed it.
type Strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	scheme *runtime.Scheme
}

// NewStrategy returns a Strategy that finds kinds and their versions in scheme.
func NewStrategy(scheme *runtime.Scheme) Strategy {
	return Strategy{ObjectTyper: scheme, NameGenerator: nameGenerator{}, scheme: scheme}
}

// InVersion converts obj to version. It returns the errors of runtime.Scheme.ConvertToVersion.
func (s Strategy) InVersion(obj runtime.Object, version schema.GroupVersion) (runtime.Object, error) {
	return s.scheme.ConvertToVersion(obj, version)
}

// NamespaceScoped is true: no kind of the group is cluster scoped.
func (Strategy) NamespaceScoped() bool { return true }

// AllowCreateOnUpdate is false, so that PUT never creates. A claim that came
// into being through PUT would go past the call that binds its sandboxes.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate is false, as for custom resources: an update without a
// resourceVersion would undo what others, and the controllers, have written since the
// client read the object. Patches and server-side apply need none.
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

// Canonicalize does nothing. Raw JSON is canonicalized before validation, in
// PrepareForCreate and PrepareForUpdate, because the generation depends on it.
func (Strategy) Canonicalize(runtime.Object) {}

// WarningsOnCreate has nothing to warn about unless a kind says otherwise.
func (Strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate has nothing to warn about unless a kind says otherwise.
func (Strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// GetResetFields keeps server-side apply from owning the status, which a write of a
// main resource never changes.
func (Strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set { return ResetFields() }

// ResetFields are the fields that writes of a main resource leave alone, for
// server-side apply: its managers must not come to own them.
func ResetFields(extra ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	return resetFields(append(extra, fieldpath.MakePathOrDie("status"))...)
}

// resetFields says so for every version that serves the objects: a manager of one must not
// come to own, or to lose, by a write in another what that write leaves alone.
func resetFields(paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range v1alpha1.ServedVersions {
		reset[fieldpath.APIVersion(version.String())] = fieldpath.NewSet(paths...)
	}
	return reset
}

// KeepMetadata makes the metadata of a status update those of the stored
// object, as custom resources do it: a client that may write the status of a
// kind cannot move labels, finalizers or owners that way. Managed fields stay
// the update's own, because they record that very update.
func KeepMetadata(updated, stored *metav1.ObjectMeta) {
	managedFields := updated.ManagedFields
	stored.DeepCopyInto(updated)
	updated.ManagedFields = managedFields
}

// SpecChanged reports whether an update asks for something else than before, which
// is what a new generation stands for. updated is canonical already. stored
// need not be: objects written by a transaction of the allocator have not passed
// any strategy. So a difference counts only if it outlasts canonicalizing.
func SpecChanged[S any, P interface {
	*S
	DeepCopy() *S
}](updated, stored P, canonicalize func(P)) bool {
	if apiequality.Semantic.DeepEqual(updated, stored) {
		return false
	}
	canonical := P(stored.DeepCopy())
	canonicalize(canonical)
	return !apiequality.Semantic.DeepEqual(updated, canonical)
}

// ForbidResourceVersion returns an error if a new object has a resourceVersion. The store would
// refuse it with 500.
func ForbidResourceVersion(meta *metav1.ObjectMeta) field.ErrorList {
	if meta.ResourceVersion == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "resourceVersion"), storage.ErrResourceVersionSetOnCreate.Error())}
}

// ClearResourceVersionOnApply clears the resourceVersion of an object that a server-side apply creates.
// The API server ignores it for other kinds, too.
func ClearResourceVersionOnApply(ctx context.Context, meta *metav1.ObjectMeta) {
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok && info.Verb == "patch" {
		meta.ResourceVersion = ""
	}
}

// Warn sends warnings to the client.
func Warn(ctx context.Context, warnings []string) {
	for _, text := range warnings {
		warning.AddWarning(ctx, "", text)
	}
}

// WholeSeconds drops what etcd does not keep of a time. Many clients send
// fractions of a second; sent again, they would look like a change every time.
// The zero time is none: JSON has null for it, and protobuf would keep it.
func WholeSeconds(t *metav1.Time) *metav1.Time {
	if t == nil || t.Truncate(time.Second).IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

// PastTimeWarning warns of a time that has passed already: legal, because it is
// the shortest way to say "now", but rarely what was meant.
func PastTimeWarning(path *field.Path, t *metav1.Time, now time.Time, consequence string) []string {
	if t.IsZero() || t.Time.After(now) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s has passed already; %s", path, t.UTC().Format(time.RFC3339), consequence)}
}
