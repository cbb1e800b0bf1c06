// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package encryptionkeys makes, keeps and rotates the keys that sandlot-apiserver
// encrypts its store with, so that an install is encrypted at rest and users need do
// nothing for it. It knows Secrets, and no store.
//
// # What is where
//
//	Secret sandlot-encryption         config.yaml: the EncryptionConfiguration that
//	                                  sandlot-apiserver mounts
//	Secret sandlot-encryption-copy    config.yaml: the same, which nothing mounts
//	ConfigMap sandlot-encryption      keys: the names of all keys that were ever made
//
// # Why nothing is lost
//
// Who loses a key loses what is encrypted with it. So:
//
//   - A key is in the copy, and its name in the ConfigMap, before any API server sees
//     it. A Secret that is deleted or spoilt is made again from the other one.
//   - Keys that only one of the two Secrets has are put into both, so that a Secret
//     which is restored from a backup adds its keys.
//   - No key is ever dropped. An old one costs about 100 bytes for each rotation, and
//     reads the backups of its time.
//   - Where a key is missing whose name is in the ConfigMap, none is made in its place,
//     and none begins to write: an event and a metric ask for the Secret of a backup.
//
// # Why no call fails
//
// Every API server must be able to read what another one writes. A new key is published
// as one to read with. It writes when it has been published for the overlap, in which
// the kubelets bring it to the API servers, and no Pod of an API server runs that does
// not mount the Secret. So it is with the first key of an install that was not encrypted
// before: until its old Pods are gone, the new ones write in plain text.
//
// What is stored by then is encrypted anew by sandlot-apiserver (pkg/store/reencryption).
//
// # Why secretbox
//
// XSalsa20-Poly1305 has nonces of 24 random bytes, which do not come twice. AES-GCM with
// the random 12 bytes of its provider must change its key every 200,000 writes, which
// claims make within minutes; AES-CBC does not notice what was changed. KMS needs a
// plugin on every node.
package encryptionkeys
