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
		"The longest claimTimeout that a claim may have. Claims that are there already keep theirs.")
	fs.DurationVar(&l.MaxWaitReadyTimeout, "max-wait-ready-timeout", l.MaxWaitReadyTimeout, ""+
		"The longest waitReadyTimeout that a claim may have. Claims that are there already keep theirs.")
	fs.Int64Var(&l.MaxBytes, "max-claim-bytes", l.MaxBytes, ""+
		"How many bytes one claim may put on its sandboxes, all together: labels, annotations, additionalPodMetadata, env, volumeClaimTemplates, envVars and dynamicVolumesMount, "+
		"and of sandboxes made for it everything.")
	fs.IntVar(&l.MaxFreshSandboxes, "max-fresh-sandboxes", l.MaxFreshSandboxes, ""+
		"How many sandboxes one claim may hold at a time that were made for it because the pools had too few. "+
		"maxFreshSandboxes of a SandboxSet or SandboxTemplate says otherwise for what is made from it.")
	fs.StringVar(&l.PodMetadata, "claim-pod-metadata", l.PodMetadata, ""+
		"Which labels and annotations of claims reach pods where neither SandboxSet nor SandboxTemplate has a podMetadataPolicy: All, None, "+
		"or Prefixed, which holds back labels without a prefix, such as app, and those of kubernetes.io and k8s.io, by which Services select pods. "+
		"They are on the Sandboxes in any case.")
	fs.IntVar(&l.MaxWaiting, "max-waiting-claims-per-namespace", l.MaxWaiting, ""+
		"How many claims of a namespace may wait for sandboxes: one user may have half of the places, and more users their shares of the rest. "+
		"Beyond that, a claim that would have to wait is refused with 429.")
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
