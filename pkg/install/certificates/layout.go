// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// The keys in Secrets and ConfigMaps. They are also the names of files where a
// Secret is mounted.
const (
	keyCert     = "tls.crt"
	keyKey      = "tls.key"
	keyCA       = "ca.crt"
	keyNextCert = "next.crt"
	keyNextKey  = "next.key"
	keyBundle   = "ca-bundle.crt"
)

// The Secrets and ConfigMaps, in Options.Namespace.
const (
	// ServingSecret has the certificate of sandlot-apiserver.
	ServingSecret = "sandlot-apiserver-serving"
	// ManagerServingSecret has the certificate that sandlot-controller-manager serves its
	// metrics with.
	ManagerServingSecret = "sandlot-controller-manager-serving"
	// SignerSecret has the CA of the serving certificates, and CAConfigMap the CAs
	// to trust.
	SignerSecret = "sandlot-signer"
	CAConfigMap  = "sandlot-ca"

	// EtcdServerSecret, EtcdPeerSecret and EtcdClientSecret have the certificates of
	// etcd towards its clients and among its members, and of its client, which is
	// sandlot-apiserver.
	EtcdServerSecret = "sandlot-etcd-server"
	EtcdPeerSecret   = "sandlot-etcd-peer"
	EtcdClientSecret = "sandlot-etcd-client"
	// EtcdSignerSecret has the CA of those, and EtcdCAConfigMap the CAs to trust.
	EtcdSignerSecret = "sandlot-etcd-signer"
	EtcdCAConfigMap  = "sandlot-etcd-ca"
)

// managerName is what sandlot-controller-manager is called. It has no Service; what
// reads its metrics expects the name that one would have.
const managerName = "sandlot-controller-manager"

// Secrets returns the names of all Secrets that the options ask for, sorted.
func (o Options) Secrets() []string {
	var names []string
	for _, a := range o.authorities() {
		names = append(names, a.secrets()...)
	}
	slices.Sort(names)
	return names
}

// ConfigMaps returns the names of all ConfigMaps that the options ask for, sorted.
func (o Options) ConfigMaps() []string {
	var names []string
	for _, a := range o.authorities() {
		names = append(names, a.bundle)
	}
	slices.Sort(names)
	return names
}

// authority is a CA and what it signs.
type authority struct {
	name     string        // the key of its work queue item
	signer   string        // Secret
	bundle   string        // ConfigMap
	validity time.Duration // of the CA
	targets  []target
	// apiServices are whose caBundle is the bundle, if any.
	apiServices []string
	// restarts means that Pods see a new bundle only when they are made anew.
	restarts bool
}

// target is a certificate that an authority signs. The first name is its subject's.
type target struct {
	secret string
	names  []string
	usages []x509.ExtKeyUsage
}

// secrets are the names of its Secrets.
func (a authority) secrets() []string {
	names := []string{a.signer}
	for _, t := range a.targets {
		names = append(names, t.secret)
	}
	return names
}

// authorities returns the authorities that the options ask for.
func (o Options) authorities() []authority {
	list := []authority{{
		name:        "serving",
		signer:      SignerSecret,
		bundle:      CAConfigMap,
		validity:    o.SignerValidity,
		apiServices: o.APIServices,
		targets: []target{{
			secret: ServingSecret,
			names:  o.servingNames(),
			usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, {
			secret: ManagerServingSecret,
			names:  append(serviceNames(managerName, o.Namespace), "localhost"),
			usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}},
	}}
	if o.EtcdMembers == 0 {
		return list
	}
	// Members are client and server to each other, and a server's gateway logs in to
	// itself with its own certificate.
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return append(list, authority{
		name:     "etcd",
		signer:   EtcdSignerSecret,
		bundle:   EtcdCAConfigMap,
		validity: o.EtcdSignerValidity,
		restarts: true,
		targets: []target{
			{secret: EtcdServerSecret, names: append(o.etcdNames(), "localhost"), usages: both},
			{secret: EtcdPeerSecret, names: o.etcdNames(), usages: both},
			{secret: EtcdClientSecret, names: []string{o.APIServerService}, usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		},
	})
}

// servingNames are what sandlot-apiserver is called: by the aggregator (.svc), in
// the cluster, and through kubectl port-forward.
func (o Options) servingNames() []string {
	names := append(serviceNames(o.APIServerService, o.Namespace), "localhost")
	for _, name := range o.APIServerNames {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// etcdNames are the names of the members, and of their Service. A member checks
// that what another one calls from is the address of one of these names, so they
// are the full ones.
func (o Options) etcdNames() []string {
	names := serviceNames(o.EtcdService, o.Namespace)
	for i := range o.EtcdMembers {
		member := fmt.Sprintf("%s-%d.%s.%s.svc", o.EtcdService, i, o.EtcdService, o.Namespace)
		names = append(names, member, member+".cluster.local")
	}
	return names
}

func serviceNames(service, namespace string) []string {
	full := service + "." + namespace + ".svc"
	return []string{full, full + ".cluster.local", service + "." + namespace, service}
}
