// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	const raw, metadata, labels, annotations = 2, 1, 11, 12 // of runtime.Unknown, of the object, and of its metadata
	message, isProtobuf := bytes.CutPrefix(data, []byte("k8s\x00"))
	if !isProtobuf {
		return memoryBytes(bytes.Count(data, []byte(`":"`)))
	}
	entries := 0
	eachField(message, func(field protowire.Number, object []byte) {
		if field != raw {
			return
		}
		eachField(object, func(field protowire.Number, meta []byte) {
			if field != metadata {
				return
			}
			eachField(meta, func(field protowire.Number, _ []byte) {
				if field == labels || field == annotations {
					entries++
				}
			})
		})
	})
	return memoryBytes(entries)
}

func memoryBytes(entries int) int { return entryBytes * max(0, entries-freeEntries) }

// eachField calls f for each field of a message that has a length.
func eachField(message []byte, f func(field protowire.Number, value []byte)) {
	for len(message) > 0 {
		field, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(field, wireType, message); n < 0 {
			return
		}
		if value, length := protowire.ConsumeBytes(message); wireType == protowire.BytesType && length == n {
			f(field, value)
		}
		message = message[n:]
	}
}
