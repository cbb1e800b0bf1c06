// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sandlot-io/sandlot/pkg/apiserver/storespace"
)

// minWriteBurst is more than one object may have, so that a write never waits for itself.
const minWriteBurst = 2 * maxRequestBodyBytes

// WriteLimits are what the command line says about how many bytes may be written.
type WriteLimits struct {
	storespace.Limits
}

// NewWriteLimits returns the defaults.
func NewWriteLimits() WriteLimits { return WriteLimits{storespace.DefaultLimits()} }

// AddFlags adds the flags to fs.
func (l *WriteLimits) AddFlags(fs *pflag.FlagSet) {
	fs.Int64Var(&l.Namespace.Rate, "namespace-write-bytes-per-second", l.Namespace.Rate, ""+
		"How many bytes a second are written to etcd for one namespace by this server, with what claims write on their sandboxes. "+
		"Beyond that, creations and changes are refused with 429, and claims that go on in the background wait. Deletes are always taken. 0 is no limit.")
	fs.Int64Var(&l.Namespace.Burst, "namespace-write-burst-bytes", l.Namespace.Burst, ""+
		"How many bytes may be written for one namespace at once, beyond --namespace-write-bytes-per-second.")
	fs.Int64Var(&l.User.Rate, "user-write-bytes-per-second", l.User.Rate, ""+
		"Like --namespace-write-bytes-per-second, for one user in all namespaces. A team of the E2B API is one user. 0 is no limit.")
	fs.Int64Var(&l.User.Burst, "user-write-burst-bytes", l.User.Burst, ""+
		"How many bytes may be written for one user at once, beyond --user-write-bytes-per-second.")
}

// Validate returns all errors of the options.
func (l *WriteLimits) Validate() []error {
	var errs []error
	for name, limit := range map[string]storespace.Limit{"namespace": l.Namespace, "user": l.User} {
		if limit.Rate < 0 {
			errs = append(errs, fmt.Errorf("--%s-write-bytes-per-second must not be negative", name))
		}
		if limit.Rate > 0 && limit.Burst < minWriteBurst {
			errs = append(errs, fmt.Errorf("--%s-write-burst-bytes must be at least %d", name, minWriteBurst))
		}
	}
	return errs
}

// podNamespace is the file that comes with the token of a pod's service account.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// unboundWriters are the users whose writes are never refused for their bytes: this process
// itself, with the controllers in it, and the controller manager of the install that it is
// part of, which is in the namespace that a file names.
func unboundWriters(namespaceFile string) sets.Set[string] {
	unbound := sets.New(user.APIServerUser)
	if namespace, err := os.ReadFile(namespaceFile); err == nil { // or it is in no pod
		unbound.Insert(serviceaccount.MakeUsername(strings.TrimSpace(string(namespace)), "sandlot-controller-manager"))
	}
	return unbound
}
