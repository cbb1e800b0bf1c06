// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// keptBuffer is the buffer of a watch, which grows by what is written to it, and by nothing else.
type keptBuffer struct {
	splice
	grew int
}

// splice has another name than its method.
type splice = runtime.Splice

func (b *keptBuffer) Write(p []byte) (int, error) {
	b.grew += len(p)
	return b.splice.Write(p)
}

// TestBuffersOfWatches: the buffers that a watch keeps do not grow by its events, and hold the same
// as other encoders write.
func TestBuffersOfWatches(t *testing.T) {
	object := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: map[string]string{"a": strings.Repeat("x", 1<<20)}}}
	scheme := registrytest.NewScheme()
	served := NewSerializer(serializer.NewCodecFactory(scheme), scheme)
	for _, info := range served.SupportedMediaTypes() {
		encoders := map[string]runtime.Encoder{"an object": served.EncoderForVersion(info.Serializer, v1alpha1.SchemeGroupVersion)}
		if info.StreamSerializer != nil {
			encoders["an event"] = served.EncoderForVersion(info.StreamSerializer.Serializer, v1alpha1.SchemeGroupVersion)
		}
		for name, encoder := range encoders {
			var want bytes.Buffer
			kept := &keptBuffer{splice: runtime.NewSpliceBuffer()}
			if err := encoder.Encode(object, &want); err != nil {
				t.Fatal(err)
			}
			if err := encoder.Encode(object, kept); err != nil {
				t.Fatal(err)
			}
			if kept.grew != 0 || !bytes.Equal(kept.Bytes(), want.Bytes()) {
				t.Errorf("%s of %s: the buffer grew by %d bytes and holds %d, want %d", name, info.MediaType, kept.grew, len(kept.Bytes()), want.Len())
			}
		}
	}
}
