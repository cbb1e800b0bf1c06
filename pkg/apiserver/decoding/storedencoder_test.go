// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/decoding"
)

// TestStoredEncoder: an object that could not be decoded again is not encoded. Others may look
// like it.
func TestStoredEncoder(t *testing.T) {
	d := newDecoders(t)
	encoder := decoding.NewStoredEncoder(d.codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -23*60*60))
	early := time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 23*60*60))
	for name, tc := range map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		want   string
	}{
		"no time":      {change: func(*v1alpha1.SandboxClaim) {}},
		"texts":        {change: func(c *v1alpha1.SandboxClaim) { c.Annotations = map[string]string{"a": "10000-01-01T", "b": "-001-"} }},
		"the last one": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.ShutdownTime = &metav1.Time{Time: late.Add(-23 * time.Hour)} }},
		"too late":     {func(c *v1alpha1.SandboxClaim) { c.Spec.ShutdownTime = &metav1.Time{Time: late} }, "/spec/shutdownTime"},
		"too early":    {func(c *v1alpha1.SandboxClaim) { c.Spec.ShutdownTime = &metav1.Time{Time: early} }, "/spec/shutdownTime"},
		"of a manager": {func(c *v1alpha1.SandboxClaim) {
			c.ManagedFields = []metav1.ManagedFieldsEntry{{}, {Time: &metav1.Time{Time: late}}}
		}, "/metadata/managedFields/1/time"},
		"nested": {func(c *v1alpha1.SandboxClaim) {
			c.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(strings.Repeat("[", 300) + strings.Repeat("]", 300))}}
		}, "200 levels"},
	} {
		claim := &v1alpha1.SandboxClaim{}
		tc.change(claim)
		var encoded bytes.Buffer
		err := encoder.Encode(claim, &encoded)
		if tc.want != "" {
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tc.want) || encoded.Len() > 0 {
				t.Errorf("%s: %v and %d bytes, want an error for %s", name, err, encoded.Len(), tc.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, _, err := d.stored.Decode(encoded.Bytes(), nil, nil); err != nil {
			t.Errorf("%s is not decoded: %v", name, err)
		}
	}
}

// TestStoredProtobufEncoder: what NewStoredEncoder refuses is refused in protobuf too. What is stored in
// either form has the same raw JSON, and none is changed in memory.
func TestStoredProtobufEncoder(t *testing.T) {
	d := newDecoders(t)
	info, _ := runtime.SerializerInfoForMediaType(d.codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	inJSON := decoding.NewStoredEncoder(d.codecs.LegacyCodec(v1alpha1.SchemeGroupVersion))
	inProtobuf := decoding.NewStoredProtobufEncoder(d.codecs.EncoderForVersion(info.Serializer, v1alpha1.SchemeGroupVersion))
	raw := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
	year10000 := metav1.NewTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	for name, tc := range map[string]struct {
		change func(*v1alpha1.SandboxSet)
		want   string
	}{
		"compact":     {change: func(s *v1alpha1.SandboxSet) { s.Spec.Template = raw(`{"a":"b c"}`) }},
		"white space": {change: func(s *v1alpha1.SandboxSet) { s.Spec.Template = raw("{ \"a\" : [ 1,\n 2 ] }") }},
		"escapes":     {change: func(s *v1alpha1.SandboxSet) { s.Spec.Patch = raw(`{"a":"< & > \u003c é ` + "\u2028" + `"}`) }},
		"volumes": {change: func(s *v1alpha1.SandboxSet) {
			s.Spec.VolumeClaimTemplates = []runtime.RawExtension{*raw(`{}`), *raw(`{ }`)}
		}},
		"null": {change: func(s *v1alpha1.SandboxSet) { s.Spec.Template = &runtime.RawExtension{} }},
		"text": {change: func(s *v1alpha1.SandboxSet) { s.Spec.Template = raw(`{"a":"\\"}`) }},
		// Stored by an earlier version, which took these.
		"quantity":      {change: func(s *v1alpha1.SandboxSet) { s.Spec.Template = raw(`{"spec":{"x":1e4000}}`) }},
		"no object":     {change: func(s *v1alpha1.SandboxSet) { s.Spec.Patch = raw(`[1]`) }},
		"many brackets": {change: func(s *v1alpha1.SandboxSet) { s.Spec.Template = raw(`{"a":[` + strings.Repeat("{},", 300) + `{}]}`) }},
		"before 1970":   {change: func(s *v1alpha1.SandboxSet) { s.CreationTimestamp = metav1.Unix(-1, 0) }},
		"time":          {func(s *v1alpha1.SandboxSet) { s.CreationTimestamp = year10000 }, "metadata.creationTimestamp"},
		"nested": {func(s *v1alpha1.SandboxSet) {
			s.Spec.Template = raw(strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300))
		}, "spec.template"},
		"no JSON": {func(s *v1alpha1.SandboxSet) { s.Spec.Template = raw(`{`) }, "a template that is no JSON"},
		"manager": {func(s *v1alpha1.SandboxSet) {
			s.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300))}}
		}, "metadata.managedFields[0].fieldsV1"},
	} {
		set := &v1alpha1.SandboxSet{}
		tc.change(set)
		before := set.DeepCopy()
		var js, protobuf bytes.Buffer
		err := inProtobuf.Encode(set, &protobuf)
		if !reflect.DeepEqual(set, before) {
			t.Errorf("%s: the object was changed", name)
		}
		if tc.want != "" {
			if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tc.want) || protobuf.Len() > 0 {
				t.Errorf("%s: %v and %d bytes, want an error for %s", name, err, protobuf.Len(), tc.want)
			}
			continue
		}
		if err := errors.Join(err, inJSON.Encode(set, &js)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		fromJSON, _, err1 := d.stored.Decode(js.Bytes(), nil, nil)
		fromProtobuf, _, err2 := d.stored.Decode(protobuf.Bytes(), nil, nil)
		if err := errors.Join(err1, err2); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(fromJSON, fromProtobuf, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-JSON +protobuf):\n%s", name, diff)
		}
	}
}
