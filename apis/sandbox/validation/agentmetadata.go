// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// DefaultLabelDomain is the domain of the labels that claims of agent-sandbox may put on
// their pods, unless the server is configured with others.
const DefaultLabelDomain = "sandbox.users.io"

// ValidateLabelDomains checks the domains that labels of pods may have.
func ValidateLabelDomains(domains []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, domain := range domains {
		for _, msg := range validation.IsDNS1123Subdomain(domain) {
			errs = append(errs, field.Invalid(path.Index(i), domain, msg))
		}
	}
	return errs
}

// routerLabel and routerValue are the label by which network policies of agent-sandbox let
// its router in, which no claim may say of its pod.
const (
	routerLabel = "app"
	routerValue = "sandbox-router"
)

// ValidateAgentPodMetadata checks the additionalPodMetadata of a claim of agent-sandbox.
// A label needs a domain, which is one of domains or below one of them. Annotations are of
// any domain but those of the platform, of Kubernetes and of this system, safe-to-evict of
// the cluster autoscaler excepted. No values are in the errors. Such a claim is stored all
// the same, so how much there is was checked before.
func ValidateAgentPodMetadata(spec *v1alpha1.SandboxClaimSpec, domains []string) field.ErrorList {
	additional := v1alpha1.AdditionalPodMetadataOf(spec)
	path := field.NewPath("spec", "additionalPodMetadata")
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(additional.Labels)) {
		if why := agentLabelRefused(key, additional.Labels[key], domains); why != "" {
			errs = append(errs, field.Forbidden(path.Child("labels").Key(shown(key)), why))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(additional.Annotations)) {
		if why := agentAnnotationRefused(key); why != "" {
			errs = append(errs, field.Forbidden(path.Child("annotations").Key(shown(key)), why))
		}
	}
	return errs
}

// agentLabelRefused is why a claim may not give its pod a label; "" if it may.
func agentLabelRefused(key, value string, domains []string) string {
	if key == routerLabel && value == routerValue {
		return "pods with it are let through to sandboxes"
	}
	if why := notQualified(key); why != "" {
		return why
	}
	if len(validation.IsValidLabelValue(value)) > 0 {
		return "its value is no value of a label"
	}
	if !slices.ContainsFunc(domains, func(domain string) bool { return isOf(key, domain) }) {
		return fmt.Sprintf("labels need a domain prefix, which is one of %s or below it", strings.Join(domains, ", "))
	}
	if err := validatePodLabelKey(nil, key); err != nil {
		return err.Detail
	}
	return ofPlatform(key)
}

// agentAnnotationRefused is why a claim may not give its pod an annotation; "" if it may.
func agentAnnotationRefused(key string) string {
	if why := notQualified(strings.ToLower(key)); why != "" {
		return why
	}
	if key == v1alpha1.AnnotationSafeToEvict {
		return ""
	}
	for _, domain := range restrictedDomains {
		if isOf(key, domain) {
			return fmt.Sprintf("annotations of %s are not for claims: they belong into the pod template", domain)
		}
	}
	if err := validatePodAnnotationKey(nil, key); err != nil {
		return err.Detail
	}
	return ofPlatform(key)
}

// ofPlatform says that a key means something to who runs pods, if it does.
func ofPlatform(key string) string {
	if !v1alpha1.IsPlatformKey(key) {
		return ""
	}
	return "it means something to the platform that runs pods: it belongs into the pod template"
}

func notQualified(key string) string {
	return strings.Join(validation.IsQualifiedName(key), "; ")
}

// maxShownKey is how many bytes of a key stand in an error: no key that may be is longer.
const maxShownKey = validation.DNS1123SubdomainMaxLength + 1 + 63

// shown is a key as errors have it.
func shown(key string) string {
	if len(key) <= maxShownKey {
		return key
	}
	return strings.ToValidUTF8(key[:maxShownKey], "") + "..."
}
