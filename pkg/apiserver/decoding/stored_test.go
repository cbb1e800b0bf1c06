// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding_test

import (
	"bytes"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	apifuzzer "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/sandlot-io/sandlot/apis/sandbox/fuzzer"
	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
)

// asked counts what is left to the decoder behind.
type asked struct {
	runtime.Decoder
	times int
}

func (a *asked) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	a.times++
	return a.Decoder.Decode(data, defaults, into)
}

type decoders struct {
	codecs serializer.CodecFactory
	behind *asked
	stored runtime.Decoder
}

func newDecoders(t testing.TB) *decoders {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	d := &decoders{codecs: serializer.NewCodecFactory(scheme)}
	d.behind = &asked{Decoder: d.codecs.UniversalDeserializer()}
	var err error
	d.stored, err = decoding.NewStoredDecoder(d.behind, scheme, v1alpha1.SchemeGroupVersion,
		&v1alpha1.Sandbox{}, &v1alpha1.SandboxClaim{}, &v1alpha1.SandboxSet{}, &v1alpha1.SandboxTemplate{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// same decodes by both and wants one outcome.
func (d *decoders) same(t *testing.T, data []byte, empty func() runtime.Object) {
	t.Helper()
	want, wantKind, wantErr := d.behind.Decoder.Decode(data, nil, empty())
	got, kind, err := d.stored.Decode(data, nil, empty())
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%.300s: error %v, want %v", data, err, wantErr)
	}
	if err == nil && *kind != *wantKind {
		t.Errorf("%.300s: is a %s, want %s", data, kind, wantKind)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%.300s:\n%s", data, diff.Diff(want, got))
	}
}

var empties = map[string]func() runtime.Object{
	"Sandbox":         func() runtime.Object { return &v1alpha1.Sandbox{} },
	"SandboxClaim":    func() runtime.Object { return &v1alpha1.SandboxClaim{} },
	"SandboxSet":      func() runtime.Object { return &v1alpha1.SandboxSet{} },
	"SandboxTemplate": func() runtime.Object { return &v1alpha1.SandboxTemplate{} },
}

func TestStoredObjectsDecodeAsBefore(t *testing.T) {
	d := newDecoders(t)
	fill := apifuzzer.FuzzerFor(apifuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzer.Funcs), rand.NewSource(rand.Int63()), d.codecs)
	for kind, empty := range empties {
		for range 200 {
			object := empty()
			fill.Fill(object)
			data, err := runtime.Encode(d.codecs.LegacyCodec(v1alpha1.SchemeGroupVersion), object)
			if err != nil {
				t.Fatal(err)
			}
			d.same(t, data, empty)
			d.same(t, data, func() runtime.Object { return nil })
			d.same(t, []byte(strings.Replace(string(data), `"metadata":`, `"unknown":{"a":[1,"b",null]},"Spec":{"x":1},"metadata":`, 1)), empty)
		}
		if d.behind.times > 0 {
			t.Fatalf("%s: the decoder behind was asked %d times", kind, d.behind.times)
		}
	}
}

// TestOthersAreLeftToTheDecoderBehind shows it what the server has not stored so.
func TestOthersAreLeftToTheDecoderBehind(t *testing.T) {
	const begin = `{"kind":"Sandbox","apiVersion":"agents.kruise.io/v1alpha1",`
	for name, data := range map[string]string{
		"nothing":           ``,
		"no object":         `null`,
		"cut off":           begin + `"metadata":{"name":"a"}`,
		"more behind":       begin + `"metadata":{"name":"a"}} {}`,
		"wrong type":        begin + `"metadata":{"name":1}}`,
		"bad time":          begin + `"metadata":{"creationTimestamp":"yesterday"}}`,
		"another order":     `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"Sandbox","metadata":{"name":"a"}}`,
		"spaces":            ` { "kind":"Sandbox","apiVersion":"agents.kruise.io/v1alpha1","metadata":{"name":"a"}}`,
		"another kind":      `{"kind":"Scale","apiVersion":"autoscaling/v1"}`,
		"another version":   `{"kind":"Sandbox","apiVersion":"agents.x-k8s.io/v1beta1","metadata":{"name":"a"}}`,
		"protobuf":          "k8s\x00\n\x1c",
		"too large a count": strings.Replace(begin, "Sandbox", "SandboxSet", 1) + `"spec":{"replicas":3000000000}}`,
	} {
		d := newDecoders(t)
		d.same(t, []byte(data), empties["Sandbox"])
		if d.behind.times != 1 {
			t.Errorf("%s: the decoder behind was asked %d times, want once", name, d.behind.times)
		}
	}
}

// TestOddStoredObjects are what an encoder of Go has never written, but a decoder of Go takes.
func TestOddStoredObjects(t *testing.T) {
	const begin = `{"kind":"Sandbox","apiVersion":"agents.kruise.io/v1alpha1",`
	for name, data := range map[string]string{
		"nulls":        begin + `"metadata":{"name":"a","labels":null,"creationTimestamp":null,"ownerReferences":null},"spec":null,"status":{"conditions":null}}`,
		"empty":        begin + `"metadata":{"name":"a","labels":{},"ownerReferences":[]},"spec":{},"status":{"conditions":[]}}`,
		"twice a name": begin + `"metadata":{"name":"a","labels":{"x":"1","x":"2"},"name":"b"}}`,
		"no UTF-8":     begin + "\"metadata\":{\"name\":\"a\xff\"}}",
		"escapes":      begin + `"metadata":{"name":"\u003ca\ud800\u2028"}}`,
		"other case":   begin + `"metadata":{"NAME":"a"},"SPEC":{"paused":true}}`,
	} {
		d := newDecoders(t)
		d.same(t, []byte(data), empties["Sandbox"])
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// A decoder that is given an object fills that one, and leaves nothing of what was in it.
func TestStoredIntoAnObject(t *testing.T) {
	d := newDecoders(t)
	into := &v1alpha1.Sandbox{}
	into.Labels = map[string]string{"old": "1"}
	object, _, err := d.stored.Decode([]byte(`{"kind":"Sandbox","apiVersion":"agents.kruise.io/v1alpha1","metadata":{"name":"a"}}`), nil, into)
	if err != nil || object != runtime.Object(into) || into.Name != "a" || into.Labels != nil {
		t.Errorf("%v %v", into, err)
	}
}

func BenchmarkStored(b *testing.B) {
	d := newDecoders(b)
	sandbox := &v1alpha1.Sandbox{}
	sandbox.Name, sandbox.Labels = "pool-1", map[string]string{"app": "bench"}
	sandbox.Spec.Template = &runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"sandbox","image":"registry.example.com/sandbox:1.0"}]}}`)}
	data, err := runtime.Encode(d.codecs.LegacyCodec(v1alpha1.SchemeGroupVersion), sandbox)
	if err != nil {
		b.Fatal(err)
	}
	data = bytes.TrimSpace(data)
	for name, decoder := range map[string]runtime.Decoder{"stored": d.stored, "behind": d.behind} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := decoder.Decode(data, nil, &v1alpha1.Sandbox{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
