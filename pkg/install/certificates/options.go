// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// day is a unit of validity.
const day = 24 * time.Hour

// Options say which certificates there are and how long they last.
type Options struct {
	// Namespace is where everything is, the Services and Pods too. It is required.
	Namespace string
	// APIServices are the APIServices whose caBundle follows the serving CA, by name.
	// One that does not exist, or that is served by something else than
	// APIServerService, is left alone until that changes.
	APIServices []string
	// APIServerService is the Service of sandlot-apiserver, for the names in its
	// certificate, and APIServerNames are further names.
	APIServerService string
	APIServerNames   []string
	// EtcdMembers is how many members the etcd of the install has, or 0 if it is
	// none of ours. EtcdService is the headless Service that they are named under,
	// and the name of their StatefulSet.
	EtcdMembers int
	EtcdService string

	// Validity is how long certificates are valid, SignerValidity and
	// EtcdSignerValidity how long the CAs. All are replaced after two thirds of it.
	Validity, SignerValidity, EtcdSignerValidity time.Duration
	// Overlap is how long a new CA has been published before it signs. It is the
	// time that the slowest kube-apiserver may take to see a caBundle.
	Overlap time.Duration
}

// NewOptions returns the defaults. Which namespace it is remains to be said.
func NewOptions() Options {
	return Options{
		APIServices:        []string{"v1alpha1.agents.kruise.io"},
		APIServerService:   "sandlot-apiserver",
		EtcdService:        "sandlot-etcd",
		Validity:           90 * day,
		SignerValidity:     3 * 365 * day,
		EtcdSignerValidity: 10 * 365 * day,
		Overlap:            10 * time.Minute,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Namespace, "certificates-namespace", o.Namespace,
		"Namespace of the Secrets of certificates and of the Services and Pods that use them. Defaults to --namespace.")
	fs.StringSliceVar(&o.APIServices, "certificates-apiservice", o.APIServices,
		"APIServices whose caBundle is kept up to date if they exist and refer to the Service of sandlot-apiserver.")
	fs.StringVar(&o.APIServerService, "certificates-apiserver-service", o.APIServerService,
		"Service of sandlot-apiserver.")
	fs.StringSliceVar(&o.APIServerNames, "certificates-apiserver-names", o.APIServerNames,
		"Additional DNS names of the serving certificate of sandlot-apiserver.")
	fs.IntVar(&o.EtcdMembers, "certificates-etcd-members", o.EtcdMembers,
		"Number of members of the etcd StatefulSet to issue certificates for. 0 issues none.")
	fs.StringVar(&o.EtcdService, "certificates-etcd-service", o.EtcdService,
		"Name of the etcd StatefulSet and of its headless Service.")
	fs.DurationVar(&o.Validity, "certificates-validity", o.Validity,
		"Validity of certificates. They are rotated after two thirds of it.")
	fs.DurationVar(&o.SignerValidity, "certificates-signer-validity", o.SignerValidity,
		"Validity of the CA of the serving certificate. It is rotated after two thirds of it.")
	fs.DurationVar(&o.EtcdSignerValidity, "certificates-etcd-signer-validity", o.EtcdSignerValidity,
		"Validity of the CA of the certificates of etcd. It is rotated after two thirds of it, once all Pods that trust it have been restarted.")
	fs.DurationVar(&o.Overlap, "certificates-overlap", o.Overlap,
		"Time that a new CA is published before it signs certificates.")
}

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	for flag, value := range map[string]string{
		"certificates-namespace":         o.Namespace,
		"certificates-apiserver-service": o.APIServerService,
		"certificates-etcd-service":      o.EtcdService,
	} {
		for _, message := range validation.IsDNS1123Label(value) {
			errs = append(errs, fmt.Errorf("--%s: %s", flag, message))
		}
	}
	for _, name := range o.APIServerNames {
		for _, message := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, fmt.Errorf("--certificates-apiserver-names: %q: %s", name, message))
		}
	}
	if len(o.APIServices) == 0 || slices.Contains(o.APIServices, "") {
		errs = append(errs, errors.New("--certificates-apiservice is required, and must not be empty"))
	}
	if o.EtcdMembers < 0 {
		errs = append(errs, fmt.Errorf("--certificates-etcd-members must not be negative, is %d", o.EtcdMembers))
	}
	if o.Validity <= 0 || o.Overlap <= 0 {
		errs = append(errs, errors.New("--certificates-validity and --certificates-overlap must be positive"))
	}
	// A CA is replaced when a third of its time is left, which must do for the next
	// one to be published, and for the last certificate it signed to be replaced.
	for flag, value := range map[string]time.Duration{
		"certificates-signer-validity":      o.SignerValidity,
		"certificates-etcd-signer-validity": o.EtcdSignerValidity,
	} {
		if least := 3 * max(o.Overlap, o.Validity); value < least {
			errs = append(errs, fmt.Errorf("--%s must be at least three times --certificates-validity and --certificates-overlap (%s), is %s", flag, least, value))
		}
	}
	return errors.Join(errs...)
}
