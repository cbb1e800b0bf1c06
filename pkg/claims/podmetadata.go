// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"maps"
	"slices"
	"strings"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// AnyKey is what a PodMetadataPolicy says that lets every key through.
const AnyKey = "*"

// AllowedKeys returns which keys of a claim's labels or annotations, as field says, a
// policy lets through: exact keys, and beginnings that end in *. nil lets all through.
func AllowedKeys(policy *v1alpha1.PodMetadataPolicy, field string) []string {
	switch {
	case policy == nil:
		return []string{AnyKey}
	case field == "labels":
		return policy.Labels
	default:
		return policy.Annotations
	}
}

// PodMetadata returns which of the labels or annotations that a claim brings its pods
// have, and the keys, sorted, that are held back.
//
//  1. What platforms act on never reaches a pod from a claim, but for these excepted keys.
//  2. A key has to be allowed.
//  3. What the pod template sets stays: the claim may only say the same.
func PodMetadata(brings, template map[string]string, allowed []string, excepted ...string) (passes map[string]string, heldBack []string) {
	passes = make(map[string]string, len(brings))
	for _, key := range slices.Sorted(maps.Keys(brings)) {
		set, isSet := template[key]
		ofPlatform := v1alpha1.IsPlatformKey(key) && !slices.Contains(excepted, key)
		if ofPlatform || !matchesAny(key, allowed) || isSet && set != brings[key] {
			heldBack = append(heldBack, key)
			continue
		}
		passes[key] = brings[key]
	}
	return passes, heldBack
}

func matchesAny(key string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, AnyKey)
		return key == pattern || isPrefix && strings.HasPrefix(key, prefix)
	})
}
