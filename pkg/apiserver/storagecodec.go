// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"io"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
	"github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
)

// StorageFormat is the format in which a server writes objects to etcd: JSON, until UseProtobuf is
// called. The zero value is ready to use.
type StorageFormat struct {
	// protobufUntil is until when the server writes protobuf; nil if it does not.
	protobufUntil atomic.Pointer[time.Time]
	// clock is the time; nil is that of the machine.
	clock clock.PassiveClock
}

// noEnd is later than any server runs.
var noEnd = time.Unix(1<<40, 0)

// UseProtobuf lets the server write protobuf from now on, until a formatKeeper limits that.
func (f *StorageFormat) UseProtobuf() { f.useProtobufUntil(noEnd) }

func (f *StorageFormat) useProtobufUntil(end time.Time) { f.protobufUntil.Store(&end) }

// IsProtobuf reports whether the server writes protobuf.
func (f *StorageFormat) IsProtobuf() bool {
	until := f.protobufUntil.Load()
	return until != nil && cmp.Or[clock.PassiveClock](f.clock, clock.RealClock{}).Now().Before(*until)
}

// Codec returns the codec of objects in etcd. They are encoded in the version v1alpha1 of
// agents.kruise.io, and decoded from whatever the scheme knows, in JSON and in protobuf. What could not
// be decoded is not encoded.
func (f *StorageFormat) Codec() runtime.Codec {
	stored, err := decoding.NewStoredDecoder(scheme.Codecs.UniversalDeserializer(), scheme.Scheme, v1alpha1.SchemeGroupVersion,
		&v1alpha1.Sandbox{}, &v1alpha1.SandboxClaim{}, &v1alpha1.SandboxSet{}, &v1alpha1.SandboxTemplate{})
	utilruntime.Must(err) // the scheme has these types
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	encoder := storageEncoder{
		format:   f,
		json:     decoding.NewStoredEncoder(scheme.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)),
		protobuf: decoding.NewStoredProtobufEncoder(scheme.Codecs.EncoderForVersion(info.Serializer, v1alpha1.SchemeGroupVersion)),
	}
	return runtime.NewCodec(encoder, scheme.Codecs.DecoderToVersion(stored, runtime.InternalGroupVersioner))
}

// NewStorageCodec returns the codec of a server that writes protobuf.
func NewStorageCodec() runtime.Codec {
	var format StorageFormat
	format.UseProtobuf()
	return format.Codec()
}

// storageEncoder encodes in the format of the server.
type storageEncoder struct {
	format         *StorageFormat
	json, protobuf runtime.Encoder
}

func (e storageEncoder) current() runtime.Encoder {
	if e.format.IsProtobuf() {
		return e.protobuf
	}
	return e.json
}

// Encode implements runtime.Encoder.
func (e storageEncoder) Encode(obj runtime.Object, w io.Writer) error {
	return e.current().Encode(obj, w)
}

// Identifier implements runtime.Encoder.
func (e storageEncoder) Identifier() runtime.Identifier { return e.current().Identifier() }
