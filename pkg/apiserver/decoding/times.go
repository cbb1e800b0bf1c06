// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"encoding/json"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// wrongTime says how to write a time that cannot be decoded. Most often it is a duration.
func wrongTime(js json.RawMessage, err error, path *field.Path) *field.Error {
	value := shown(js)
	text, isString := value.(string)
	_, notDuration := time.ParseDuration(text)
	_, notNumber := strconv.ParseFloat(text, 64)
	const must = `must be a time as a string in RFC 3339, such as "2030-01-02T15:04:05Z"`
	switch {
	case isString && (notDuration == nil || notNumber == nil):
		return field.Invalid(path, value, must+", and not a duration")
	case isString: // the error of the library says what is wrong with it
		return field.Invalid(path, value, err.Error())
	default:
		return field.Invalid(path, value, must)
	}
}
