// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/rand"
	"strings"
)

const (
	// maxName is how long the name of a claim may be, which is the value of a label.
	maxName = 63
	// suffixLength is how many letters and digits a made name ends in: 80 random bits.
	suffixLength = 16
	// defaultPrefix begins the names of claims without generateName.
	defaultPrefix = "claim-"
)

// nameFor makes a name as the server does for generateName, but before the first try, so
// that each try is by the same name and at most one of them binds.
func nameFor(generateName string) string {
	if generateName == "" {
		generateName = defaultPrefix
	}
	return generateName[:min(len(generateName), maxName-suffixLength)] + random()[:suffixLength]
}

// random returns 26 random small letters and digits.
func random() string { return strings.ToLower(rand.Text()) }
