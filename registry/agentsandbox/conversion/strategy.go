// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// Words are what a resource is called in the second group.
type Words struct {
	// Resource and Singular qualify its name.
	Resource, Singular schema.GroupResource
	// ShortName is what kubectl takes, too.
	ShortName string
	// Fields are the paths of fields that are called otherwise here, by the path in the
	// group that objects are stored in.
	Fields map[string]string
}

// secondGroup says how a resource is served in the second group. Both strategies embed it.
type secondGroup struct {
	carrier Carrier
	words   *Words
	// check looks for mistakes that only the second group's schema makes; nil is none.
	check func(obj runtime.Object) field.ErrorList
}

// createStrategy is that of the stored kind, for creates in the words of the second group.
type createStrategy struct {
	rest.RESTCreateStrategy
	secondGroup
}

// updateStrategy is that of the stored kind, or of its status, for updates.
type updateStrategy struct {
	base.UpdateStrategy
	secondGroup
}

// ObjectKinds names the kind of the second group first, which is what errors name.
func (s createStrategy) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	kinds, unversioned, err := s.RESTCreateStrategy.ObjectKinds(obj)
	return s.words.first(kinds), unversioned, err
}

// ObjectKinds names the kind of the second group first, which is what errors name.
func (s updateStrategy) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	kinds, unversioned, err := s.UpdateStrategy.ObjectKinds(obj)
	return s.words.first(kinds), unversioned, err
}

// first puts the kinds of the second group before all others.
func (w *Words) first(kinds []schema.GroupVersionKind) []schema.GroupVersionKind {
	var own, others []schema.GroupVersionKind
	for _, kind := range kinds {
		if kind.Group == w.Resource.Group {
			own = append(own, kind)
		} else {
			others = append(others, kind)
		}
	}
	return append(own, others...)
}

// PrepareForCreate fills in what has a default in the group that objects are stored in, and
// then prepares as the stored kind does.
func (s createStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.carrier.Scheme.Default(obj)
	s.RESTCreateStrategy.PrepareForCreate(ctx, obj)
}

// Validate validates a new object, and names the fields as the client does.
func (s createStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return s.words.rename(append(s.extra(obj), s.RESTCreateStrategy.Validate(ctx, obj)...))
}

// PrepareForUpdate keeps what the version of the request cannot say, and then prepares as the
// stored kind does. ValidateUpdate refuses what this fails for.
func (s updateStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	_ = s.carrier.carry(ctx, obj, old)
	s.UpdateStrategy.PrepareForUpdate(ctx, obj, old)
}

// ValidateUpdate validates a changed object.
func (s updateStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	if errs := s.carrier.canCarry(ctx, old); len(errs) > 0 {
		return errs
	}
	return s.words.rename(append(s.extra(obj), s.UpdateStrategy.ValidateUpdate(ctx, obj, old)...))
}

func (g *secondGroup) extra(obj runtime.Object) field.ErrorList {
	if g.check == nil {
		return nil
	}
	return g.check(obj)
}

// rename gives errors the names that the fields have in the second group.
func (w *Words) rename(errs field.ErrorList) field.ErrorList {
	for _, err := range errs {
		err.Field = w.fieldName(err.Field)
	}
	return errs
}

func (w *Words) fieldName(path string) string {
	longest := ""
	for is := range w.Fields {
		rest, ok := strings.CutPrefix(path, is)
		if ok && (rest == "" || rest[0] == '.' || rest[0] == '[') && len(is) > len(longest) {
			longest = is
		}
	}
	if longest == "" {
		return path
	}
	return w.Fields[longest] + strings.TrimPrefix(path, longest)
}
