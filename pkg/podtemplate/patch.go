// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
)

// patched counts for the whole process.
var patched atomic.Int64

// Patched is how many patches this process has applied so far, for a metric and for tests
// of what a request costs.
func Patched() int64 { return patched.Load() }

// ApplyPatch applies a strategic merge patch to a pod template. Errors are ErrPatch, also
// for lists that are too long to be merged while a request waits.
// Integers stay exact. Fields that this version of Kubernetes does not know are
// kept, and patched as a JSON merge patch would: maps are merged, lists replaced.
func ApplyPatch(template, patch *runtime.RawExtension) (*runtime.RawExtension, error) {
	original, err := decode(template)
	if err != nil {
		return nil, fmt.Errorf("%w: pod template: %w", ErrPatch, err)
	}
	change, err := decode(patch)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPatch, err)
	}
	// Neither needs to be in a store of ours that has these limits.
	tooLong := validation.ValidateLists(original, field.NewPath("template"))
	if tooLong == nil {
		tooLong = validation.ValidateLists(change, field.NewPath("patch"))
	}
	if tooLong != nil {
		return nil, fmt.Errorf("%w: %w", ErrPatch, tooLong)
	}
	patched.Add(1)
	names := namesOfContainers(original)
	merged, err := merge(original, change)
	if err == nil {
		err = unknownContainer(merged, names)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPatch, err)
	}
	removeDirectives(merged)
	raw, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPatch, err)
	}
	return &runtime.RawExtension{Raw: raw}, nil
}

// merge changes both of what it is given.
func merge(original, change map[string]any) (merged map[string]any, err error) {
	// The library compares what it takes for merge keys and for names of fields
	// without looking whether they can be compared: a list instead of a name makes
	// it panic.
	defer func() {
		if r := recover(); r != nil {
			merged, err = nil, fmt.Errorf("malformed: %v", r)
		}
	}()
	schema, err := strategicpatch.NewPatchMetaFromStruct(corev1.PodTemplateSpec{})
	if err != nil {
		return nil, err
	}
	merged, err = strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(original, change, known{schema})
	return merged, withoutValues(err)
}

// removeDirectives takes away the directives that met nothing to be applied to: the
// library leaves some of them in what the patch adds.
func removeDirectives(value any) {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(key string, _ any) bool { return isDirective(key) })
		for _, field := range value {
			removeDirectives(field)
		}
	case []any:
		for _, element := range value {
			removeDirectives(element)
		}
	}
}

func isDirective(key string) bool {
	return key == "$patch" || key == "$retainKeys" ||
		strings.HasPrefix(key, "$setElementOrder/") || strings.HasPrefix(key, "$deleteFromPrimitiveList/")
}

// known is the schema of a type, with fields that are not in it unknown instead
// of refused.
type known struct {
	strategicpatch.LookupPatchMeta
}

func (k known) LookupPatchMetadataForStruct(
	key string,
) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	schema, meta, err := k.LookupPatchMeta.LookupPatchMetadataForStruct(key)
	if err != nil { // its one reason is that there is no such field
		return unknown{}, strategicpatch.PatchMeta{}, nil //nolint:nilerr // the meaning of this type
	}
	return known{schema}, meta, nil
}

func (k known) LookupPatchMetadataForSlice(
	key string,
) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	if _, _, err := k.LookupPatchMeta.LookupPatchMetadataForStruct(key); err != nil {
		return unknown{}, strategicpatch.PatchMeta{}, nil //nolint:nilerr // as above
	}
	schema, meta, err := k.LookupPatchMeta.LookupPatchMetadataForSlice(key)
	if err != nil {
		return nil, strategicpatch.PatchMeta{}, fmt.Errorf("%s: %w", key, err)
	}
	return known{schema}, meta, nil
}

// unknown is the schema of what is in no type.
type unknown struct{}

func (unknown) LookupPatchMetadataForStruct(string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	return unknown{}, strategicpatch.PatchMeta{}, nil
}

func (unknown) LookupPatchMetadataForSlice(string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	return unknown{}, strategicpatch.PatchMeta{}, nil
}

func (unknown) Name() string { return "unknown" }

// errDoesNotFit stands for errors of the library that say what is in a patch.
var errDoesNotFit = errors.New("it is malformed or does not fit the template")

// plainErrors are errors of the library without values.
var plainErrors = []error{
	mergepatch.ErrBadJSONDoc,
	mergepatch.ErrNoListOfLists,
	mergepatch.ErrBadPatchFormatForPrimitiveList,
	mergepatch.ErrBadPatchFormatForRetainKeys,
	mergepatch.ErrBadPatchFormatForSetElementOrderList,
	mergepatch.ErrPatchContentNotMatchRetainKeys,
	mergepatch.ErrUnsupportedStrategicMergePatchFormat,
}

// withoutValues makes of the library's errors ones that may stand where more people
// read than may read the template: in conditions and events. Some print the
// element that they are about, variables with their values included.
func withoutValues(err error) error {
	if err == nil || slices.ContainsFunc(plainErrors, func(plain error) bool { return errors.Is(err, plain) }) {
		return err
	}
	message := err.Error()
	switch {
	case strings.HasPrefix(message, "expected a "), // and names of Go types
		strings.HasPrefix(message, "invalid value for special key: "):
		return err
	case strings.HasPrefix(message, "map: "):
		// The key at the end is the schema's.
		const before = " does not contain declared merge key: "
		if at := strings.LastIndex(message, before); at >= 0 {
			return fmt.Errorf("an element of a list does not have the key by which the list is merged: %s", message[at+len(before):])
		}
	case strings.HasPrefix(message, "unknown patch type: "):
		return errors.New("an unknown $patch directive")
	case strings.HasPrefix(message, "The order in patch list:"):
		return errors.New("the order of a list is not that of its $setElementOrder")
	}
	return errDoesNotFit
}
