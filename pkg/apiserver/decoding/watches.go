// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
)

// freeBuffers makes the serializers of watches hand over what they encode. The generic handler of a
// watch encodes into buffers that it keeps: they would stay as large as the largest event for as long
// as the watch lasts, which is mostly idle.
func freeBuffers(infos []runtime.SerializerInfo) {
	for i := range infos {
		infos[i].Serializer = handingOver{infos[i].Serializer}
		if infos[i].StreamSerializer != nil {
			stream := *infos[i].StreamSerializer
			stream.Serializer = handingOver{stream.Serializer}
			infos[i].StreamSerializer = &stream
		}
	}
}

// handingOver is a serializer that encodes into a buffer of its own where it can hand that over.
type handingOver struct{ runtime.Serializer }

// Encode implements runtime.Encoder.
func (s handingOver) Encode(obj runtime.Object, w io.Writer) error {
	if kept, ok := w.(runtime.Splice); ok {
		return s.handOver(obj, kept)
	}
	return s.Serializer.Encode(obj, w)
}

func (s handingOver) handOver(obj runtime.Object, kept runtime.Splice) error {
	var encoded bytes.Buffer
	if err := s.Serializer.Encode(obj, &encoded); err != nil {
		return err
	}
	kept.Splice(encoded.Bytes())
	return nil
}
