// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import "github.com/blang/semver/v4"

var oldestEnvd = semver.MustParse("0.1.0")

// isVersion reports whether clients take a version of envd for one that they can use.
func isVersion(text string) bool {
	v, err := semver.Parse(text)
	return err == nil && v.GTE(oldestEnvd)
}
