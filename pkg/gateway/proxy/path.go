// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/url"
	"strings"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// pathPrefix begins the paths that name a sandbox. mapping.APIPrefix is below it.
const pathPrefix = "/kruise/"

// splitPath returns the parts of a path /kruise/<id>/<port>/<rest>. rest is still escaped, and begins with a
// slash. ok is false for other paths, and for those of the API.
func splitPath(u *url.URL) (id, port, rest string, ok bool) {
	if u.Path == mapping.APIPrefix || strings.HasPrefix(u.Path, mapping.APIPrefix+"/") {
		return "", "", "", false
	}
	path, ok := strings.CutPrefix(u.EscapedPath(), pathPrefix)
	if !ok {
		return "", "", "", false
	}
	id, path, _ = strings.Cut(path, "/")
	port, rest, _ = strings.Cut(path, "/")
	return id, port, "/" + rest, true
}

// replacePath returns a copy of u with another path, which is escaped already. What is in it,
// .. too, is for the sandbox to understand.
func replacePath(u *url.URL, escaped string) (*url.URL, error) {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, err
	}
	replaced := *u
	replaced.Path, replaced.RawPath = path, escaped
	return &replaced, nil
}
