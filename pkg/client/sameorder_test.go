// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// A claim with the key that asks for something else, or that another user has made, is not
// taken for the own one.
func TestMade(t *testing.T) {
	order := func() *v1alpha1.SandboxClaim {
		claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run"}}
		claim.Spec.TemplateName = "python"
		claim.Spec.VolumeClaimTemplates = []runtime.RawExtension{{Raw: []byte(`{"kind": "PersistentVolumeClaim",  "a": 1}`)}}
		return claim
	}
	cases := map[string]struct {
		user   string
		change func(*v1alpha1.SandboxClaim)
		want   bool
	}{
		"as it is stored": {change: v1alpha1.SetObjectDefaults_SandboxClaim, want: true},
		"raw objects written otherwise": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.VolumeClaimTemplates[0].Raw = []byte(`{"a":1,"kind":"PersistentVolumeClaim"}`)
		}, want: true},
		"empty, not absent": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.EnvVars = map[string]string{} }, want: true},
		"ended sooner":      {change: func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout = &metav1.Duration{Duration: time.Second} }, want: true},
		"of the user":       {user: "ann", want: true},
		"of another user":   {user: "bob"},
		"another key":       {change: func(c *v1alpha1.SandboxClaim) { c.Annotations[AnnotationKey] = "other" }},
		"another pool":      {change: func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "evil" }},
		"one pool of it":    {change: func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = "evil" }},
		"by template": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "evil"}
		}},
		"another image": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.InplaceUpdate = &v1alpha1.SandboxClaimInplaceUpdateOptions{Image: "evil"}
		}},
		"other variables": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.EnvVars = map[string]string{"PATH": "/evil"} }},
		"reclaimed":       {change: func(c *v1alpha1.SandboxClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete }},
		"all or nothing":  {change: func(c *v1alpha1.SandboxClaim) { c.Spec.Allocation = v1alpha1.AllocationAllOrNothing }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &call{options: Options{Key: "key", User: tc.user}, want: withNameAndKey(order(), "key")}
			there := withNameAndKey(order(), "key")
			there.Annotations[v1alpha1.AnnotationClaimedBy] = "ann"
			if tc.change != nil {
				tc.change(there)
			}
			if got := c.made(there); got != tc.want {
				t.Errorf("taken for the own claim: %t, want %t", got, tc.want)
			}
		})
	}
}
