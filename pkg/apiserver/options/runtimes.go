// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
)

// Runtimes are what the command line says about calls of agent-runtimes: the certificates
// for those that speak TLS. The files are read again when they change.
type Runtimes struct {
	// CAFile has the certificates of the CA that has signed those of the runtimes, in PEM.
	CAFile string
	// ClientCertFile and ClientKeyFile are the client certificate, in PEM.
	ClientCertFile, ClientKeyFile string
}

// AddFlags adds the flags to fs.
func (r *Runtimes) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&r.CAFile, "runtime-ca-file", r.CAFile, ""+
		"Certificates of the CA that has signed those of agent-runtimes that speak TLS. Without it, their sandboxes cannot be set up for claims.")
	fs.StringVar(&r.ClientCertFile, "runtime-client-cert-file", r.ClientCertFile, "Client certificate for agent-runtimes that speak TLS.")
	fs.StringVar(&r.ClientKeyFile, "runtime-client-key-file", r.ClientKeyFile, "Key of --runtime-client-cert-file.")
}

// Validate returns all errors of the options.
func (r *Runtimes) Validate() []error {
	if !r.none() && (r.CAFile == "" || r.ClientCertFile == "" || r.ClientKeyFile == "") {
		return []error{errors.New("--runtime-ca-file, --runtime-client-cert-file and --runtime-client-key-file go together")}
	}
	return nil
}

func (r *Runtimes) none() bool { return r.CAFile+r.ClientCertFile+r.ClientKeyFile == "" }

// certificates reads the files; nil where there are none.
func (r *Runtimes) certificates() (*agentruntime.Certificates, error) {
	if r.none() {
		return nil, nil
	}
	return agentruntime.NewCertificates(r.CAFile, r.ClientCertFile, r.ClientKeyFile)
}
