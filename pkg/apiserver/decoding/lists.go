// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxWholeList is how many bytes of JSON a list may have that is encoded as a whole.
const maxWholeList = 4 << 20

// listSerializer encodes large lists one item at a time. The encoders of indented JSON and YAML
// hold several copies of the whole list. So a list above maxWholeList is encoded as compact JSON,
// which is also valid YAML.
type listSerializer struct {
	runtime.Serializer
	// stream writes compact JSON, one item of a list at a time.
	stream runtime.Encoder
}

// Encode implements runtime.Encoder.
func (s listSerializer) Encode(obj runtime.Object, w io.Writer) error {
	if !meta.IsListType(obj) {
		return s.Serializer.Encode(obj, w)
	}
	err := s.stream.Encode(obj, &limitedWriter{left: maxWholeList})
	switch {
	case errors.Is(err, errTooLong):
		return s.stream.Encode(obj, w)
	case err != nil:
		return fmt.Errorf("measuring a list: %w", err)
	}
	return s.Serializer.Encode(obj, w)
}

var errTooLong = errors.New("too long")

// limitedWriter counts bytes and fails when there are too many.
type limitedWriter struct{ left int }

// Write implements io.Writer.
func (w *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, errTooLong
	}
	w.left -= len(p)
	return len(p), nil
}

// streamLists makes the media types encode large lists one item at a time. The serializer of
// JSON does so already.
func streamLists(infos []runtime.SerializerInfo) {
	var stream runtime.Encoder
	for _, info := range infos {
		if info.MediaType == runtime.ContentTypeJSON {
			stream = info.Serializer
		}
	}
	for i := range infos {
		if pretty := infos[i].PrettySerializer; pretty != nil {
			infos[i].PrettySerializer = listSerializer{pretty, stream}
		}
		if infos[i].MediaType == runtime.ContentTypeYAML {
			infos[i].Serializer = listSerializer{infos[i].Serializer, stream}
		}
	}
}
