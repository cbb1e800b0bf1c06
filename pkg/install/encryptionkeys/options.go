// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// day is a unit of validity.
const day = 24 * time.Hour

// Options say what is encrypted, and for how long with one key.
type Options struct {
	// AtRest encrypts the store. Without it, what is encrypted is decrypted.
	AtRest bool
	// Rotation is how old the key that writes becomes before the next one is made, at
	// least a day.
	Rotation time.Duration
	// Overlap is how long a key has been published before it writes. It is the time
	// that the slowest kubelet may take to bring it to an API server.
	Overlap time.Duration
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{AtRest: true, Rotation: 90 * day, Overlap: 10 * time.Minute}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.AtRest, "encryption-at-rest", o.AtRest,
		"If true, sandlot-apiserver encrypts its store. If false, stored objects are decrypted, for a version that cannot read them.")
	fs.DurationVar(&o.Rotation, "encryption-key-rotation", o.Rotation,
		"Age at which the key of the store is rotated. At least 24h.")
	fs.DurationVar(&o.Overlap, "encryption-key-overlap", o.Overlap,
		"Time that a new key of the store is published before it encrypts.")
}

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Rotation < day { // keys are kept, so they must be few
		errs = append(errs, fmt.Errorf("--encryption-key-rotation must be at least %s, is %s", day, o.Rotation))
	}
	if o.Overlap <= 0 {
		errs = append(errs, fmt.Errorf("--encryption-key-overlap must be positive, is %s", o.Overlap))
	}
	return errors.Join(errs...)
}
