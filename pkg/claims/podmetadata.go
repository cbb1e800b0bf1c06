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

// PrefixedKeys is what the policy of an installation says that lets through the keys of
// which a prefix says whose they are. No user can say it: it is no pattern of a key.
const PrefixedKeys = "*/*"

// sharedDomains are those of labels that Services and NetworkPolicies of anyone select by,
// with all domains below them, and those of our own labels, which say what a pod is.
var sharedDomains = []string{"kubernetes.io", "k8s.io", v1alpha1.GroupName, strings.TrimSuffix(v1alpha1.SandlotKeyPrefix, "/")}

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
//  1. What platforms act on never reaches a pod from a claim, except for these excepted keys.
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
		if pattern == PrefixedKeys {
			return isPrefixed(key)
		}
		prefix, isPrefix := strings.CutSuffix(pattern, AnyKey)
		return key == pattern || isPrefix && strings.HasPrefix(key, prefix)
	})
}

// isPrefixed reports whether PrefixedKeys lets a key through. Whether a sandbox may reach the
// internet is the one thing that our labels let a claim say.
func isPrefixed(key string) bool {
	domain, _, found := strings.Cut(strings.ToLower(key), "/")
	isShared := slices.ContainsFunc(sharedDomains, func(parent string) bool {
		return domain == parent || strings.HasSuffix(domain, "."+parent)
	})
	return found && !isShared || key == v1alpha1.LabelAllowInternetAccess
}
