// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sandlot-io/sandlot/pkg/apiserver/etcdquota"
)

// minWriteBurst is twice the largest request body, so that one write does not use up a burst.
const minWriteBurst = 2 * maxRequestBodyBytes

// WriteLimits are the options of the write limits.
type WriteLimits struct {
	etcdquota.Limits
}

// NewWriteLimits returns the defaults.
func NewWriteLimits() WriteLimits { return WriteLimits{etcdquota.DefaultLimits()} }

// AddFlags adds the flags to fs.
func (l *WriteLimits) AddFlags(fs *pflag.FlagSet) {
	fs.Int64Var(&l.Namespace.Rate, "namespace-write-bytes-per-second", l.Namespace.Rate, ""+
		"Sustained limit for bytes written to etcd for one namespace through this server, including the sandboxes of claims. "+
		"Writes above it are rejected with 429, and claims in the background are delayed. The first delete of an object is never rejected. 0 disables the limit.")
	fs.Int64Var(&l.Namespace.Burst, "namespace-write-burst-bytes", l.Namespace.Burst, ""+
		"Bytes that may be written for one namespace in a burst above --namespace-write-bytes-per-second.")
	fs.Int64Var(&l.User.Rate, "user-write-bytes-per-second", l.User.Rate, ""+
		"Like --namespace-write-bytes-per-second, for one user across all namespaces. All API keys of an E2B team are one user. 0 disables the limit.")
	fs.Int64Var(&l.User.Burst, "user-write-burst-bytes", l.User.Burst, ""+
		"Bytes that may be written for one user in a burst above --user-write-bytes-per-second.")
}

// Validate returns all errors of the options.
func (l *WriteLimits) Validate() []error {
	var errs []error
	for name, limit := range map[string]etcdquota.Limit{"namespace": l.Namespace, "user": l.User} {
		if limit.Rate < 0 {
			errs = append(errs, fmt.Errorf("--%s-write-bytes-per-second must not be negative", name))
		}
		if limit.Rate > 0 && limit.Burst < minWriteBurst {
			errs = append(errs, fmt.Errorf("--%s-write-burst-bytes must be at least %d", name, minWriteBurst))
		}
	}
	return errs
}

// exemptWriters returns the API server's own user and, where it runs in the namespace of an
// installation, the service account of Sandlot's controller manager there. Elsewhere namespace is
// empty.
func exemptWriters(namespace string) sets.Set[string] {
	exempt := sets.New(user.APIServerUser)
	if namespace != "" {
		exempt.Insert(serviceaccount.MakeUsername(namespace, "sandlot-controller-manager"))
	}
	return exempt
}
