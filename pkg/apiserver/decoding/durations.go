// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var duration = reflect.TypeFor[metav1.Duration]()

// wrongDuration says how to write a duration that cannot be decoded. Most often it is a
// number of seconds, with or without quotes.
func wrongDuration(js json.RawMessage, err error, path *field.Path) *field.Error {
	value := shown(js)
	text, isString := value.(string)
	if !isString {
		text = fmt.Sprint(value)
	}
	const must = "must be a duration with its unit, as a string"
	seconds, convErr := strconv.ParseInt(text, 10, 32)
	switch {
	case convErr == nil:
		return field.Invalid(path, value, fmt.Sprintf("%s: write \"%ds\" for %d seconds", must, seconds, seconds))
	case isString: // the error of the library says what is wrong with it
		return field.Invalid(path, value, err.Error())
	default:
		return field.Invalid(path, value, must+", such as \"60s\"")
	}
}
