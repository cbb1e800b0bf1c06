// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
)

// minClaimBytes is as much as a request may bring, so that a claim for one sandbox is
// never too large.
const minClaimBytes = maxRequestBodyBytes

// ClaimLimits are what the command line says about what claims may ask for and bring.
type ClaimLimits struct {
	validation.ClaimLimits
	// MaxFreshSandboxes is how many sandboxes one claim may hold at a time that were
	// made for it, where neither set nor template says. 0 is none.
	MaxFreshSandboxes int
	// PodMetadata says whether labels and annotations of claims reach pods where neither
	// the SandboxSet nor the SandboxTemplate says it: apiserver.ClaimPodMetadataPrefixed,
	// apiserver.ClaimPodMetadataAll or apiserver.ClaimPodMetadataNone.
	PodMetadata string
	// MaxWaiting is how many claims of a namespace may wait for sandboxes: at least 1.
	MaxWaiting int
}

// NewClaimLimits returns the defaults.
func NewClaimLimits() ClaimLimits {
	return ClaimLimits{
		ClaimLimits:       validation.DefaultClaimLimits(),
		MaxFreshSandboxes: apiserver.DefaultMaxFreshSandboxes,
		PodMetadata:       apiserver.ClaimPodMetadataPrefixed,
		MaxWaiting:        apiserver.DefaultMaxWaitingClaims,
	}
}

// AddFlags adds the flags to fs.
func (l *ClaimLimits) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&l.MaxTimeout, "max-claim-timeout", l.MaxTimeout, ""+
		"Maximum claimTimeout of a SandboxClaim. Existing claims keep theirs.")
	fs.DurationVar(&l.MaxWaitReadyTimeout, "max-wait-ready-timeout", l.MaxWaitReadyTimeout, ""+
		"Maximum waitReadyTimeout of a SandboxClaim. Existing claims keep theirs.")
	fs.Int64Var(&l.MaxBytes, "max-claim-bytes", l.MaxBytes, ""+
		"Maximum number of bytes that one SandboxClaim adds to its Sandboxes in total: labels, annotations, additionalPodMetadata, env, volumeClaimTemplates, envVars and dynamicVolumesMount, "+
		"and all of the Sandboxes that are created for it.")
	fs.IntVar(&l.MaxFreshSandboxes, "max-fresh-sandboxes", l.MaxFreshSandboxes, ""+
		"Maximum number of Sandboxes of one SandboxClaim at a time that were created for it because the pools had too few. "+
		"maxFreshSandboxes of a SandboxSet or SandboxTemplate takes precedence for Sandboxes created from it.")
	fs.StringVar(&l.PodMetadata, "claim-pod-metadata", l.PodMetadata, ""+
		"Which labels and annotations of SandboxClaims are copied to pods if neither SandboxSet nor SandboxTemplate has a podMetadataPolicy: All, None, "+
		"or Prefixed, which excludes labels without a prefix, such as app, and those of kubernetes.io and k8s.io, because Services select pods by them. "+
		"Sandboxes have all of them in any case.")
	fs.IntVar(&l.MaxWaiting, "max-waiting-claims-per-namespace", l.MaxWaiting, ""+
		"Maximum number of SandboxClaims in a namespace that wait for Sandboxes. One user may have half of them, and further users share the rest. "+
		"Further claims that would have to wait are rejected with 429.")
}

// Validate returns all errors of the options.
func (l *ClaimLimits) Validate() []error {
	var errs []error
	if least := v1alpha1.DefaultClaimTimeout; l.MaxTimeout < least {
		errs = append(errs, fmt.Errorf("--max-claim-timeout must be at least %s, the default of claims", least))
	}
	if least := v1alpha1.DefaultWaitReadyTimeout; l.MaxWaitReadyTimeout < least {
		errs = append(errs, fmt.Errorf("--max-wait-ready-timeout must be at least %s, the default of claims", least))
	}
	if l.MaxBytes < minClaimBytes {
		errs = append(errs, fmt.Errorf("--max-claim-bytes must be at least %d", minClaimBytes))
	}
	if most := validation.MaxFreshSandboxes; l.MaxFreshSandboxes < 0 || l.MaxFreshSandboxes > most {
		errs = append(errs, fmt.Errorf("--max-fresh-sandboxes must be between 0 and %d", most))
	}
	switch l.PodMetadata {
	case apiserver.ClaimPodMetadataPrefixed, apiserver.ClaimPodMetadataAll, apiserver.ClaimPodMetadataNone:
	default:
		errs = append(errs, fmt.Errorf("--claim-pod-metadata must be %s, %s or %s",
			apiserver.ClaimPodMetadataPrefixed, apiserver.ClaimPodMetadataAll, apiserver.ClaimPodMetadataNone))
	}
	if l.MaxWaiting < 1 {
		errs = append(errs, errors.New("--max-waiting-claims-per-namespace must be at least 1"))
	}
	return errs
}
