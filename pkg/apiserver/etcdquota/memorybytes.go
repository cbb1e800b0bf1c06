// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
)

const (
	// freeEntries is how many labels and annotations of an object count only at their size.
	freeEntries = 64
	// entryBytes is how many bytes each further one counts for beside its size. In etcd it may have
	// as few as 6 bytes, and in the memory of each API server it has some 75: in the watch cache as long
	// as the object exists, and in the history of watches for each of its latest writes.
	entryBytes = 64
)

// MemoryBytes returns how many bytes a write of an object counts for beside its size in etcd.
func MemoryBytes(obj metav1.Object) int {
	return memoryBytes(len(obj.GetLabels()) + len(obj.GetAnnotations()))
}

// storedMemoryBytes is MemoryBytes of an object as it is stored. Of one in JSON all texts count as
// entries, because nothing less than decoding it tells them apart.
func storedMemoryBytes(data []byte) int {
	if decoding.IsProtobuf(data) {
		return memoryBytes(decoding.MetadataEntries(data))
	}
	return memoryBytes(bytes.Count(data, []byte(`":"`)))
}

func memoryBytes(entries int) int { return entryBytes * max(0, entries-freeEntries) }
