// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version says which build of Sandlot this is.
package version

import "runtime/debug"

// version is set when a release is linked:
//
//	-ldflags "-X github.com/sandlot-io/sandlot/pkg/version.version=v1.2.3"
var version string

// Get returns the version of a release, or of any other build the commit, as
// far as it is known.
func Get() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v // go install ...@v1.2.3, or a build in a clone: a pseudo-version of the commit
	}
	return "devel"
}
