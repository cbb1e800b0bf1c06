// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// maxMessage is how many bytes the message of an error has at most. Messages quote names of
// fields, keys of maps and values, each of which may be as long as the body.
const maxMessage = 4096

// bounded returns an error whose message is cut to a bounded size. A strict error stays one.
func bounded(err error) error {
	if err == nil || len(err.Error()) <= maxMessage {
		return err
	}
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return errors.New(cut(err.Error(), maxMessage))
	}
	var kept []error
	left := maxMessage
	for _, one := range strict.Errors() {
		if left <= 0 {
			break
		}
		text := cut(one.Error(), left)
		kept = append(kept, errors.New(text))
		left -= len(text)
	}
	return runtime.NewStrictDecodingError(kept)
}

// cut returns the first bytes of a text, with dots where more follows.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
