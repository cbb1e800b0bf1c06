// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxCauses is how many causes remain of an error that boundedStatus cuts.
const maxCauses = 16

// checkGrowth refuses what an update makes of an object if that has more elements than maxElements and than before.
// It is a base.CheckUpdate.
func checkGrowth(old, updated runtime.Object, err error) error {
	if err != nil {
		return boundedStatus(err)
	}
	sized, ok := updated.(interface{ Size() int })
	if !ok || sized.Size() < 2*maxElements { // an element takes two bytes
		return nil
	}
	now, err := elementsOfObject(updated)
	if err != nil || now <= maxElements {
		return err
	}
	before, err := elementsOfObject(old)
	if err == nil && now > before {
		object, _ := meta.Accessor(updated) // all that is updated has metadata
		err = apierrors.NewInvalid(updated.GetObjectKind().GroupVersionKind().GroupKind(), object.GetName(),
			field.ErrorList{field.Forbidden(field.NewPath("object"), tooManyElements(now).Error())})
	}
	return err
}

// boundError bounds the error of an update. It is a base.CheckUpdate.
func boundError(_, _ runtime.Object, err error) error { return boundedStatus(err) }

// elementsOfObject counts the elements of an object that maxElements bounds.
func elementsOfObject(obj runtime.Object) (int, error) {
	js, err := json.Marshal(obj)
	if err != nil {
		return 0, fmt.Errorf("counting the keys of an object: %w", err)
	}
	n, _ := countElements(js)
	return n.object, nil
}

// boundedStatus returns an error whose texts are cut to a bounded size if it is an API status error. That of a patch
// quotes the whole object which it does not apply to, and clients log it.
func boundedStatus(err error) error {
	if err == nil {
		return nil
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) || len(status.ErrStatus.Message) <= maxMessage {
		return err
	}
	cutStatus := apierrors.StatusError{ErrStatus: *status.ErrStatus.DeepCopy()}
	cutStatus.ErrStatus.Message = cutMiddle(cutStatus.ErrStatus.Message, maxMessage)
	if details := cutStatus.ErrStatus.Details; details != nil {
		details.Causes = details.Causes[:min(len(details.Causes), maxCauses)]
		for i := range details.Causes {
			details.Causes[i].Message = cutMiddle(details.Causes[i].Message, maxMessage/maxCauses)
		}
	}
	return &cutStatus
}

// cutMiddle returns the begin and the end of a text, which has the reason, with dots where more is between them.
func cutMiddle(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most/2]+"..."+text[len(text)-most/2:], "")
}
