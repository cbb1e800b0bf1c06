// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apitestingfuzzer "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/fuzzer"
	"github.com/sandlot-io/sandlot/apis/sandbox/install"
	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// protobufOf returns the encoder and the decoder of bodies in protobuf.
func protobufOf(t *testing.T, scheme *runtime.Scheme) (runtime.Encoder, runtime.Decoder) {
	t.Helper()
	negotiated := NewSerializer(serializer.NewCodecFactory(scheme), scheme)
	info, ok := runtime.SerializerInfoForMediaType(negotiated.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("protobuf is not served")
	}
	return negotiated.EncoderForVersion(info.Serializer, v1alpha1.SchemeGroupVersion),
		negotiated.DecoderToVersion(info.StrictSerializer, v1alpha1.SchemeGroupVersion)
}

func encoded(t *testing.T, encoder runtime.Encoder, obj runtime.Object) []byte {
	t.Helper()
	data, err := runtime.Encode(encoder, obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestProtobufOfAllFields: what any object has is known on the wire, and has as many elements as in
// JSON, where keys of lists count as well.
func TestProtobufOfAllFields(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	encoder, decoder := protobufOf(t, scheme)
	toJSON := codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	fill := apitestingfuzzer.FuzzerFor(apitestingfuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzer.Funcs), rand.NewSource(seed), codecs)
	for range 50 {
		for _, obj := range []runtime.Object{
			&v1alpha1.Sandbox{}, &v1alpha1.SandboxClaim{}, &v1alpha1.SandboxSet{}, &v1alpha1.SandboxTemplate{},
			&v1alpha1.SandboxClaimRelease{}, &v1alpha1.SandboxClaimRuntimeAccess{},
		} {
			fill.Fill(obj)
			obj.(metav1.Object).SetResourceVersion("")
			data := encoded(t, encoder, obj)
			if _, _, err := decoder.Decode(data, nil, nil); err != nil {
				t.Fatalf("%T: %v", obj, err)
			}
			n, err := checkProtobuf(scheme, data)
			if err != nil {
				t.Fatal(err)
			}
			want, ok := countElements(encoded(t, toJSON, obj))
			if !ok {
				t.Fatal("no JSON")
			}
			if n.object > 2*want.object || 3*n.object < want.object || n.status > 2*want.status+10 || 3*n.status+10 < want.status {
				t.Errorf("%T has %+v elements, and %+v in JSON", obj, n, want)
			}
		}
	}
}

// TestProtobufIsChecked: a body of protobuf is refused for what one of JSON is refused for, and for what
// could not be encoded as JSON.
func TestProtobufIsChecked(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	encoder, decoder := protobufOf(t, scheme)
	template := func(js string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(js)} }
	year10000 := metav1.NewTime(time.Date(10000, time.January, 1, 0, 0, 0, 0, time.UTC))
	sandbox := func(change func(*v1alpha1.Sandbox)) runtime.Object {
		sb := &v1alpha1.Sandbox{}
		change(sb)
		return sb
	}
	for name, tc := range map[string]struct {
		obj  runtime.Object
		want string
	}{
		"a sandbox": {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Template = template(`{"spec":{"x":[1e99]}}`) }), ""},
		"text": {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Runtimes = []v1alpha1.RuntimeConfig{{}, {Name: "\xff"}} }),
			"spec.runtimes[1].name: Invalid value: must be UTF-8"},
		"key of a map":   {sandbox(func(sb *v1alpha1.Sandbox) { sb.Labels = map[string]string{"a\xff": ""} }), "metadata.labels[a"},
		"value of a map": {sandbox(func(sb *v1alpha1.Sandbox) { sb.Labels = map[string]string{"a": "\xff"} }), "metadata.labels[a]: "},
		"time": {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.ShutdownTime = &year10000 }),
			"spec.shutdownTime: Invalid value: must lie in the years 0 to 9999 in UTC"},
		"time of a manager": {sandbox(func(sb *v1alpha1.Sandbox) { sb.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &year10000}} }),
			"metadata.managedFields[0].time: "},
		"fields of a manager": {sandbox(func(sb *v1alpha1.Sandbox) {
			sb.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1("{")}}
		}), "metadata.managedFields[0].fieldsV1: Invalid value: must be an object of JSON"},
		"no JSON":        {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Template = template(`{`) }), "spec.template: Invalid value: must be an object of JSON"},
		"no object":      {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Template = template(`[]`) }), "spec.template: "},
		"nothing":        {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Template = template(``) }), "spec.template: "},
		"a volume claim": {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`1`)}} }), "spec.volumeClaimTemplates[0]: "},
		"deep":           {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Template = template(deepObject(maxDepth - 2)) }), ""},
		"too deep":       {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Template = template(deepObject(maxDepth - 1)) }), "spec.template: Invalid value: objects and lists must not"},
		"number":         {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Template = template(`{"x":1e400}`) }), "spec.template: "},
		"quantity inside": {sandbox(func(sb *v1alpha1.Sandbox) {
			sb.Spec.Template = template(`{"spec":{"resources":{"limits":{"cpu":"1e5000"}}}}`)
		}), "spec.template.spec.resources.limits[cpu]: Invalid value: \"1e5000\""},
		"number or text": {&v1alpha1.SandboxSet{Spec: v1alpha1.SandboxSetSpec{ScaleStrategy: v1alpha1.SandboxSetScaleStrategy{MaxUnavailable: &intstr.IntOrString{Type: 7}}}},
			"spec.scaleStrategy.maxUnavailable: Invalid value: must be a number or a string"},
		"patch": {&v1alpha1.SandboxSet{Spec: v1alpha1.SandboxSetSpec{Patch: template(`"x"`)}}, "spec.patch: "},
		"many": {sandbox(func(sb *v1alpha1.Sandbox) {
			sb.Spec.Template = template(`{"spec":{"x":[` + strings.TrimSuffix(strings.Repeat("1,", maxDecodedElements), ",") + `]}}`)
		}), "keys and items of lists"},
		"many elsewhere": {sandbox(func(sb *v1alpha1.Sandbox) {
			sb.Spec.Template = template(`{"status":[` + strings.TrimSuffix(strings.Repeat("1,", maxDecodedElements), ",") + `]}`)
		}), "keys and items of lists"},
		"many empty messages": {sandbox(func(sb *v1alpha1.Sandbox) { sb.Spec.Runtimes = make([]v1alpha1.RuntimeConfig, maxDecodedElements+1) }), "keys and items of lists"},
		"version":             {sandbox(func(sb *v1alpha1.Sandbox) { sb.ResourceVersion = "x" }), "metadata.resourceVersion: "},
		"options":             {&metav1.DeleteOptions{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := decoder.Decode(encoded(t, encoder, tc.obj), nil, nil)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}

	t.Run("quantity", func(t *testing.T) {
		claim := &v1alpha1.SandboxClaim{Spec: v1alpha1.SandboxClaimSpec{InplaceUpdate: &v1alpha1.SandboxClaimInplaceUpdateOptions{
			Resources: &v1alpha1.SandboxClaimInplaceUpdateResources{Limits: corev1.ResourceList{"cpu": resource.MustParse("123456")}},
		}}}
		data := bytes.Replace(encoded(t, encoder, claim), []byte("123456"), []byte("1e9999"), 1)
		if _, _, err := decoder.Decode(data, nil, nil); err == nil || !strings.Contains(err.Error(), "spec.inplaceUpdate.resources.limits[cpu]: ") {
			t.Error(err)
		}
	})
}

// deepObject is an object of JSON with some levels.
func deepObject(levels int) string {
	return strings.Repeat(`{"x":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
}

// TestProtobufOfStrangers: messages that no encoder makes are refused, and cost no more than others.
func TestProtobufOfStrangers(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	encoder, decoder := protobufOf(t, scheme)
	whole := encoded(t, encoder, &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.SandboxSpec{
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{Template: &runtime.RawExtension{Raw: []byte(`{}`)}},
	}})
	aroundKind := func(kind string, message []byte) []byte {
		unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "agents.kruise.io/v1alpha1", Kind: kind}, Raw: message}
		data, err := unknown.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return append(slices.Clone(protobufPrefix), data...)
	}
	around := func(message []byte) []byte { return aroundKind("Sandbox", message) }
	field := func(number protowire.Number, payload []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), payload)
	}
	label := func(entry ...byte) []byte { return around(field(1, field(11, entry))) }
	limit := func(entry ...byte) []byte {
		return aroundKind("SandboxClaim", field(2, field(21, field(2, field(2, entry)))))
	}
	quantities := field(2, field(1, []byte("1e-9")))
	group := func(n int) []byte { return bytes.Repeat(protowire.AppendTag(nil, 99, protowire.StartGroupType), n) }
	for name, data := range map[string][]byte{
		"groups":              around(group(100_000)),
		"a whole group":       around(append(group(1), protowire.AppendTag(nil, 99, protowire.EndGroupType)...)),
		"groups around":       append(slices.Clone(protobufPrefix), group(100_000)...),
		"a number of a field": around(append(protowire.AppendVarint(nil, 1<<35|2<<3|2), 0)), // decoders cut it to field 2
		"a long number":       around(append(bytes.Repeat([]byte{0xff}, 9), 0x7f)),
		"too long":            around(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), math.MaxInt64)),
		// Decoders take the number for a length, and what is behind it for the key, the value or the quantity.
		"a key that is a number":      label(append([]byte{1 << 3, 4}, field(2, []byte("\xff\xff"))...)...),
		"a key of 4 bytes":            label(1<<3|5, 3, 'a', '\xff', 'b'),
		"a value of 8 bytes":          label(append(field(1, []byte("a")), 2<<3|1, 7, 1, 2, 3, 4, 5, 6, 0xff)...),
		"a quantity behind a number":  limit(append([]byte{2 << 3, 9}, field(1, []byte("1e-9999"))...)...),
		"two keys of an entry":        label(append(field(1, []byte("a")), field(1, []byte("b"))...)...),
		"two quantities of an entry":  limit(append(field(1, []byte("cpu")), append(quantities, quantities...)...)...),
		"many quantities of an entry": limit(bytes.Repeat(quantities, 100_000)...),
	} {
		if _, _, err := decoder.Decode(data, nil, nil); err == nil || !strings.Contains(err.Error(), errWire.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, body := range map[string][]byte{"a label": label(append(field(1, []byte("a")), field(2, []byte("b"))...)...), "a limit": limit(append(field(1, []byte("cpu")), quantities...)...)} {
		if _, _, err := decoder.Decode(body, nil, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	noJSON := around(field(2, field(11, field(2, protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 1)))))
	if _, _, err := decoder.Decode(noJSON, nil, nil); err == nil || !strings.Contains(err.Error(), "spec.template: Invalid value: "+errNoObject.Error()) {
		t.Errorf("a template of unknown fields: %v", err)
	}
	for i := range whole { // a part is refused by one or the other, or is a smaller object
		_, _, _ = decoder.Decode(whole[:i], nil, nil)
	}
	if _, _, err := decoder.Decode(around(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("later"))), nil, nil); err != nil {
		t.Errorf("a field of a later version: %v", err)
	}
}

// TestManyElementsOfProtobuf: a long status that the server would not take over is removed, and a create
// with too many other elements does not reach the handlers.
func TestManyElementsOfProtobuf(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	encoder, decoder := protobufOf(t, scheme)
	kinds := Kinds{}
	kinds.Add(v1alpha1.SchemeGroupVersion, "sandboxclaims", v1alpha1.SchemeGroupVersion.WithKind("SandboxClaim"))
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.SandboxClaimSpec{TemplateName: "pool"}}
	claim.Status.Message = "long"
	for i := range maxElements {
		claim.Status.Sandboxes = append(claim.Status.Sandboxes, v1alpha1.ClaimedSandbox{Name: fmt.Sprint("a-", i)})
	}
	labelled := claim.DeepCopy()
	labelled.Labels = map[string]string{}
	for i := range maxElements {
		labelled.Labels[fmt.Sprint("k", i)] = "v"
	}
	for name, tc := range map[string]struct {
		verb string
		obj  *v1alpha1.SandboxClaim
		code int
	}{
		"create with status": {"create", claim, http.StatusOK},
		"update with status": {"update", claim, http.StatusOK},
		"create of many":     {"create", labelled, http.StatusBadRequest},
		"update of many":     {"update", labelled, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			body := encoded(t, encoder, tc.obj)
			var got []byte
			handler := WithPatchRules(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				got, _ = io.ReadAll(req.Body)
			}), PatchOptions{Scheme: scheme, Codecs: serializer.NewCodecFactory(scheme), Kinds: kinds, MaxBytes: 4 << 20})
			req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{
				IsResourceRequest: true, Verb: tc.verb, APIGroup: v1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "sandboxclaims",
			}), http.MethodPost, "/", bytes.NewReader(body))
			req.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, req)
			if answer.Code != tc.code {
				t.Fatalf("%d, %.300s", answer.Code, answer.Body)
			}
			if tc.code != http.StatusOK {
				return
			}
			obj, _, err := decoder.Decode(got, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			read := obj.(*v1alpha1.SandboxClaim)
			if read.Status.Message != "" || len(read.Status.Sandboxes) > 0 || read.Spec.TemplateName != "pool" || len(read.Labels) != len(tc.obj.Labels) {
				t.Errorf("got %.300v", read)
			}
		})
	}
}

// FuzzProtobuf: what is decoded of any body can be encoded as JSON, and read again.
func FuzzProtobuf(f *testing.F) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	negotiated := NewSerializer(codecs, scheme)
	info, _ := runtime.SerializerInfoForMediaType(negotiated.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	encoder, decoder := negotiated.EncoderForVersion(info.Serializer, v1alpha1.SchemeGroupVersion), negotiated.DecoderToVersion(info.StrictSerializer, v1alpha1.SchemeGroupVersion)
	toJSON := codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)
	fill := apitestingfuzzer.FuzzerFor(apitestingfuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzer.Funcs), rand.NewSource(1), codecs)
	for _, obj := range []runtime.Object{&v1alpha1.Sandbox{}, &v1alpha1.SandboxClaim{}, &v1alpha1.SandboxSet{}, &v1alpha1.SandboxTemplate{}} {
		fill.Fill(obj)
		data, err := runtime.Encode(encoder, obj)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		obj, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			return
		}
		js, err := runtime.Encode(toJSON, obj)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := runtime.Decode(codecs.UniversalDeserializer(), js); err != nil {
			t.Fatal(err)
		}
	})
}
