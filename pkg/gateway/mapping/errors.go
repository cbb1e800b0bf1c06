// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import "fmt"

// InvalidError is a request that no repetition makes better: 400.
type InvalidError struct{ Message string }

// Error implements error.
func (e *InvalidError) Error() string { return e.Message }

func invalid(format string, args ...any) error {
	return &InvalidError{Message: fmt.Sprintf(format, args...)}
}

// UnservedError is a request for what is not served: 501.
type UnservedError struct{ What string }

// Error implements error.
func (e *UnservedError) Error() string { return e.What + " is not served by Sandlot" }
