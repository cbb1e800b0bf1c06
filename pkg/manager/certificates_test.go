// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sandlot-io/sandlot/pkg/manager"
)

func TestCertificatesFlags(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string // in the error, or none
	}{
		"not managed":  {[]string{"--certificates-validity=0"}, ""},
		"managed":      {[]string{"--manage-certificates"}, ""},
		"no validity":  {[]string{"--manage-certificates", "--certificates-validity=0"}, "--certificates-validity"},
		"no overlap":   {[]string{"--manage-certificates", "--certificates-overlap=0s"}, "--certificates-overlap"},
		"too short CA": {[]string{"--manage-certificates", "--certificates-signer-validity=24h"}, "--certificates-signer-validity must be at least"},
		"bad name":     {[]string{"--manage-certificates", "--certificates-apiserver-names=a_b"}, "--certificates-apiserver-names"},
		"members":      {[]string{"--manage-certificates", "--certificates-etcd-members=-1"}, "--certificates-etcd-members"},
		"short for a test": {[]string{
			"--manage-certificates", "--certificates-validity=20s", "--certificates-signer-validity=1m", "--certificates-overlap=5s",
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := manager.NewOptions()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.AddFlags(fs)
			if err := fs.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
