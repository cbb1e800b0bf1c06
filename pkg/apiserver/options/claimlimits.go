// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/apis/sandbox/validation"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
)

// minClaimBytes is as much as a request may bring, so that a claim for one sandbox is
// never too large.
const minClaimBytes = maxRequestBodyBytes

// ClaimLimits are what the command line says about how much one claim may ask for.
type ClaimLimits struct {
	validation.ClaimLimits
	// MaxFreshSandboxes is how many sandboxes one claim may hold at a time that were
	// made for it, where neither set nor template says. 0 is none.
	MaxFreshSandboxes int
}

// NewClaimLimits returns the defaults.
func NewClaimLimits() ClaimLimits {
	return ClaimLimits{ClaimLimits: validation.DefaultClaimLimits(), MaxFreshSandboxes: apiserver.DefaultMaxFreshSandboxes}
}

// AddFlags adds the flags to fs.
func (l *ClaimLimits) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&l.MaxTimeout, "max-claim-timeout", l.MaxTimeout, ""+
		"The longest claimTimeout that a claim may have. Claims that are there already keep theirs.")
	fs.DurationVar(&l.MaxWaitReadyTimeout, "max-wait-ready-timeout", l.MaxWaitReadyTimeout, ""+
		"The longest waitReadyTimeout that a claim may have. Claims that are there already keep theirs.")
	fs.Int64Var(&l.MaxBytes, "max-claim-bytes", l.MaxBytes, ""+
		"How many bytes one claim may put on its sandboxes, all together: labels, annotations, env and volumeClaimTemplates, "+
		"and of sandboxes made for it everything.")
	fs.IntVar(&l.MaxFreshSandboxes, "max-fresh-sandboxes", l.MaxFreshSandboxes, ""+
		"How many sandboxes one claim may hold at a time that were made for it because the pools had too few. "+
		"maxFreshSandboxes of a SandboxSet or SandboxTemplate says otherwise for what is made from it.")
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
	return errs
}
