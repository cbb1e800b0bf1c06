// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates makes, keeps, rotates and publishes the certificates of an
// install, so that users need not and no call fails because of it. It knows two
// authorities, each with a CA of its own:
//
//   - serving: the certificates of sandlot-apiserver, and of the metrics of
//     sandlot-controller-manager. The caBundle of the APIServices follows its CA.
//   - etcd, if asked for: the server, peer and client certificates of the etcd
//     that belongs to the install.
//
// # What is where
//
// All in one namespace; the names are in layout.go.
//
//	Secret sandlot-signer, sandlot-etcd-signer      tls.crt, tls.key: the CA that signs;
//	                                                next.crt, next.key: the one after it
//	ConfigMap sandlot-ca, sandlot-etcd-ca           ca-bundle.crt: the CAs to trust
//	Secret sandlot-{apiserver,controller-manager}-  tls.crt, tls.key,
//	  serving, sandlot-etcd-{server,peer,client}    ca.crt: the CAs to trust
//
// # Why no call fails
//
// A client that verifies a certificate must know its CA before it is shown one. A
// new CA is made long before the old one ends, and is published beside it: in the
// ConfigMap, in ca.crt of the Secrets, in the caBundle. Only when it has been there
// for a while (Options.Overlap) does it sign. And an old CA stays in the bundle
// until it expires, for servers that take up their new certificate late. So at any
// moment, the bundle of that moment verifies every certificate in use.
//
// etcd and its clients read the CAs to trust when they start, and never again
// (their own certificates they read for every connection). A new CA of etcd
// therefore also waits until each Pod that mounts one of those Secrets was made
// after it was published. Its turn comes after two thirds of ten years, and any
// upgrade or node drain in the rest of them serves; an event warns as long as it
// waits.
//
// Everything is level-triggered: what is deleted, spoilt or for other names is made
// anew as soon as the watch says so.
//
// # Why not one library
//
// cert-controller (github.com/open-policy-agent/cert-controller) makes and judges
// the certificates here. Its own rotation is not used, because it replaces the CA,
// the certificate and the caBundle in three steps without any overlap: until the
// last one is done, every call fails. library-go's certrotation, which has the
// overlap, cannot be had from the module proxy; cert-manager's library has no
// overlap either and moves the versions of other libraries. What is ours is the
// order of the steps (plan.go) and the reading and writing around it. One habit of
// cert-controller is worth knowing: all certificates of a CA have the serial number
// 1, so they are withdrawn by rotating their CA, not by a revocation list.
//
// # Rights it needs
//
// In its own namespace:
//
//	secrets, configmaps              create
//	secrets, resourceNames Options.Secrets:
//	                                 get, list, watch, update
//	configmaps, resourceNames Options.ConfigMaps:
//	                                 get, list, watch, update
//	pods                             get, list, watch   (only with etcd)
//	leases (coordination.k8s.io)     get, create, update
//	events (events.k8s.io)           create, patch
//
// In the cluster:
//
//	apiservices (apiregistration.k8s.io), resourceNames Options.APIServices:
//	                                 get, list, watch, patch
//
// Whose name is yet to be written cannot be asked for by name, so creating has none.
//
// It reads Secrets one by one and watches their metadata only, so that no key stays
// in its memory, and writes no key to a log or an event, whatever -v is.
package certificates
