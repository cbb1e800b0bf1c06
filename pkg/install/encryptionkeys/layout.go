// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

// The objects, in the namespace of the install.
const (
	// Secret has the configuration that API servers mount.
	Secret = "sandlot-encryption"
	// CopySecret has the same.
	CopySecret = "sandlot-encryption-copy"
	// ConfigMap has the names of all keys that were made.
	ConfigMap = "sandlot-encryption"
)

const (
	// KeyConfig is the key of the configuration in the Secrets, and the file where one
	// is mounted.
	KeyConfig = "config.yaml"
	// keyNames is the key in the ConfigMap.
	keyNames = "keys"
	// keyRestored is that of the names of those which came from a backup.
	keyRestored = "restored"

	// annotationPublished says, on Secret, since when the next key is in it.
	annotationPublished = "sandlot.io/next-key-published-at"

	// apiServerLabel and apiServerName are the label of the Pods of API servers.
	apiServerLabel = "app.kubernetes.io/name"
	apiServerName  = "sandlot-apiserver"
)

// AnnotationRotate asks for the next key now: with any value, on Secret. It is taken away
// when that key is made.
const AnnotationRotate = "sandlot.io/rotate-encryption-key"
