// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// textSerializer is a serializer that does not offer protobuf.
//
// Our kinds have no protobuf form. A client that prefers it and takes JSON as
// well, as the namespace controller does when it deletes everything, would be
// answered with an error after the deed, for ever: its namespace would never go.
type textSerializer struct {
	runtime.NegotiatedSerializer
	mediaTypes []runtime.SerializerInfo
}

func withoutProtobuf(s runtime.NegotiatedSerializer) textSerializer {
	return textSerializer{s, slices.DeleteFunc(slices.Clone(s.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})}
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s textSerializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }
