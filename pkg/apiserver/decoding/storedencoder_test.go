// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

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
