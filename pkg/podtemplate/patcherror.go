// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/mergepatch"
)

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
