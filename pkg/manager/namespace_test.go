// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sandlot-io/sandlot/pkg/podnamespace"
)

// The namespace of the installation is what is said, then where the pod is, then where
// its lease is. Lease and certificates are there too, unless they are said to be elsewhere.
func TestNamespaceOfTheInstallation(t *testing.T) {
	for name, test := range map[string]struct {
		pod                       string
		args                      []string
		want, lease, certificates string // the latter two are the first where they are empty
	}{
		"said":          {pod: "pod", args: []string{"--namespace=said", "--leader-election-namespace=lease"}, want: "said", lease: "lease"},
		"of the pod":    {pod: "pod", args: []string{"--leader-election-namespace=lease"}, want: "pod", lease: "lease"},
		"only the pod":  {pod: "pod", want: "pod"},
		"only said":     {args: []string{"--namespace=said"}, want: "said"},
		"certificates":  {pod: "pod", args: []string{"--certificates-namespace=keys"}, want: "pod", certificates: "keys"},
		"of the lease":  {args: []string{"--leader-election-namespace=lease"}, want: "lease"},
		"nothing known": {want: "sandlot-system"},
		"no lease":      {args: []string{"--leader-elect=false", "--leader-election-namespace="}, want: "sandlot-system"},
	} {
		t.Setenv(podnamespace.Variable, test.pod)
		o := NewOptions()
		if test.pod == "" {
			o.Namespace = "" // also where this runs in a pod
		}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(fs)
		if err := fs.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		o.ManageCertificates = true
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := o.withDefaults()
		if got.Namespace != test.want {
			t.Errorf("%s: %q, want %q", name, got.Namespace, test.want)
		}
		if want := cmp.Or(test.lease, test.want); got.LeaderElectionNamespace != want {
			t.Errorf("%s: the lease is in %q, want %q", name, got.LeaderElectionNamespace, want)
		}
		if want := cmp.Or(test.certificates, test.want); got.Certificates.Namespace != want {
			t.Errorf("%s: certificates are in %q, want %q", name, got.Certificates.Namespace, want)
		}
	}
}
