// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtap

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// raw hands messages on as they are, []byte.
type raw struct{}

var _ encoding.CodecV2 = raw{}

// Marshal implements encoding.CodecV2.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("etcdtap: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(message)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("etcdtap: cannot receive a %T", v)
	}
	*message = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2. It is that of the messages' real codec, because it
// becomes part of the content type.
func (raw) Name() string { return proto.Name }

// decode reads a message.
func decode(message []byte, into any) error {
	return encoding.GetCodecV2(proto.Name).Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, into)
}
