// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdquota

import (
	"bytes"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// TestMemoryBytes: an object with many annotations counts for what it takes in memory, in both forms in
// which it is stored, and an ordinary one for its size in etcd.
func TestMemoryBytes(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for name, encoder := range map[string]runtime.Encoder{
		"protobuf": protobuf.NewSerializer(scheme, scheme),
		"JSON":     json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{}),
	} {
		for _, test := range []struct{ labels, annotations, want int }{
			{10, 40, 0},
			{500, 600, 64 * (1100 - 64)},
		} {
			template := &v1alpha1.SandboxTemplate{}
			template.APIVersion, template.Kind = v1alpha1.SchemeGroupVersion.String(), "SandboxTemplate"
			template.Labels, template.Annotations = entries(test.labels), entries(test.annotations)
			if got := MemoryBytes(template); got != test.want {
				t.Errorf("%d entries: %d bytes, want %d", test.labels+test.annotations, got, test.want)
			}
			var stored bytes.Buffer
			if err := encoder.Encode(template, &stored); err != nil {
				t.Fatal(err)
			}
			// In JSON the other texts of the object count as well.
			if got := storedMemoryBytes(stored.Bytes()); got < test.want || got > test.want+4*entryBytes {
				t.Errorf("%s of %d entries: %d bytes, want %d", name, test.labels+test.annotations, got, test.want)
			}
		}
	}
}

// TestMemoryBytesOfDamagedData: what is no message counts for its size, and ends nothing.
func TestMemoryBytesOfDamagedData(t *testing.T) {
	for _, data := range []string{"", "k8s\x00", "k8s\x00\xff", "k8s\x00\x12\x05\x0a\x7f", "k8s\x00\x13\x14"} {
		if got := storedMemoryBytes([]byte(data)); got != 0 {
			t.Errorf("%q: %d bytes", data, got)
		}
	}
}

func entries(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint("k", i)] = ""
	}
	return m
}
