// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package users

import (
	"cmp"
	"errors"
	"net/http"

	"connectrpc.com/connect"
)

// Of returns the user that the headers of a call name, or fallback where they name none. The
// error is one of connect.
func Of(header http.Header, fallback string) (User, error) {
	u, err := Lookup(cmp.Or(Named(header), fallback, Default))
	switch {
	case err == nil:
		return u, nil
	case errors.Is(err, ErrUnknown):
		return u, connect.NewError(connect.CodeUnauthenticated, err)
	case errors.Is(err, ErrNotAllowed):
		return u, connect.NewError(connect.CodePermissionDenied, err)
	}
	return u, connect.NewError(connect.CodeInternal, err)
}
