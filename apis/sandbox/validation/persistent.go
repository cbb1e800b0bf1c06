// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var persistentContents = []string{
	v1alpha1.PersistentContentIP, v1alpha1.PersistentContentMemory, v1alpha1.PersistentContentFilesystem,
}

func validateChangedContents(contents, old []string, path *field.Path) field.ErrorList {
	if slices.Equal(contents, old) {
		return nil
	}
	path = path.Child("persistentContents")
	if len(contents) > len(persistentContents) {
		return field.ErrorList{field.TooMany(path, len(contents), len(persistentContents))}
	}
	var errs field.ErrorList
	for i, content := range contents {
		if slices.Contains(contents[:i], content) {
			errs = append(errs, field.Duplicate(path.Index(i), content))
			continue
		}
		errs = append(errs, validateEnum(content, persistentContents, path.Index(i))...)
	}
	return errs
}

// PersistenceWarnings tells what a pause does not keep although it is asked for:
// there is only the type Stop yet, which deletes the pod.
func PersistenceWarnings(contents []string) []string {
	if len(contents) == 0 {
		return nil
	}
	return []string{specPath.Child("persistentContents").String() +
		": a pause of type Stop keeps the contents of volumeClaimTemplates alone: no address, no memory, no other files"}
}
