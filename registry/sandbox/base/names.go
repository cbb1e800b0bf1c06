// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"crypto/rand"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
)

// suffixLength is how many letters and digits the server adds to a generateName, as
// everywhere in Kubernetes.
const suffixLength = 5

// nameGenerator appends random suffixes to the generateName of objects. They come from
// the operating system: the generator of k8s.io/apiserver is seeded by the clock, so two
// servers that start at the same time would make the same ones, one after another.
type nameGenerator struct{}

// GenerateName returns the base, cut so that the name fits into a label, with a random
// suffix in the alphabet of Kubernetes.
func (nameGenerator) GenerateName(base string) string {
	if longest := validation.DNS1123LabelMaxLength - suffixLength; len(base) > longest {
		base = base[:longest]
	}
	return base + utilrand.SafeEncodeString(rand.Text()[:suffixLength])
}
