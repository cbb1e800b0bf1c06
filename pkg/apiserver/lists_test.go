// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
	serverscheme "github.com/sandlot-io/sandlot/pkg/apiserver/scheme"
	"github.com/sandlot-io/sandlot/registry/sandbox/registrytest"
)

// TestListsAreStreamed: a large list of each kind is encoded one item at a time, in every
// format; a small one is the same text as without that.
func TestListsAreStreamed(t *testing.T) {
	t.Parallel()
	scheme := registrytest.NewScheme()
	lists := 0
	for _, gv := range v1alpha1.ServedVersions {
		newSerializer := decoding.NewTextSerializer
		if gv.Group == v1alpha1.GroupName {
			newSerializer = decoding.NewSerializer
		}
		served, plain := newSerializer(serverscheme.Codecs, scheme), newSerializer(serializer.NewCodecFactory(scheme), scheme)
		for kind, list := range scheme.KnownTypes(gv) {
			if !strings.HasSuffix(kind, "List") || !meta.IsListType(reflect.New(list).Interface().(runtime.Object)) {
				continue
			}
			lists++
			small, large := newList(t, list, 2, 10), newList(t, list, 128, 64<<10)
			want, got := serializers(plain), serializers(served)
			for format := range got {
				var whole, streamed, many writes
				if err := plain.EncoderForVersion(want[format], gv).Encode(small, &whole); err != nil {
					t.Fatal(err)
				}
				if err := served.EncoderForVersion(got[format], gv).Encode(small, &streamed); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(whole.Bytes(), streamed.Bytes()) {
					t.Errorf("%s %s as %s: %s\nwant %s", gv, kind, format, &streamed, &whole)
				}
				if err := served.EncoderForVersion(got[format], gv).Encode(large, &many); err != nil {
					t.Fatal(err)
				}
				if many.Len() < 127*64<<10 || many.largest > 128<<10 {
					t.Errorf("%s %s as %s: of %d bytes, %d are written at once", gv, kind, format, many.Len(), many.largest)
				}
			}
		}
	}
	if lists < 2*len(v1alpha1.ServedVersions)-1 {
		t.Errorf("only %d kinds of lists", lists)
	}
}

// serializers returns the serializer of each format.
func serializers(s runtime.NegotiatedSerializer) map[string]runtime.Serializer {
	all := map[string]runtime.Serializer{}
	for _, info := range s.SupportedMediaTypes() {
		all[info.MediaType] = info.Serializer
		if info.PrettySerializer != nil {
			all[info.MediaType+";pretty"] = info.PrettySerializer
		}
	}
	return all
}

// newList returns a list of items of a size.
func newList(t *testing.T, list reflect.Type, n, size int) runtime.Object {
	t.Helper()
	value := reflect.New(list)
	items := value.Elem().FieldByName("Items")
	items.Set(reflect.MakeSlice(items.Type(), n, n))
	for i := range n {
		item, ok := reflect.TypeAssert[metav1.Object](items.Index(i).Addr())
		if !ok {
			t.Fatalf("%s has items that are no objects", list)
		}
		item.SetName(fmt.Sprint(i))
		item.SetAnnotations(map[string]string{"large": strings.Repeat("x", size)})
	}
	return value.Interface().(runtime.Object)
}

// writes notes the largest of the writes.
type writes struct {
	bytes.Buffer
	largest int
}

// Write implements io.Writer.
func (w *writes) Write(p []byte) (int, error) {
	w.largest = max(w.largest, len(p))
	return w.Buffer.Write(p)
}
