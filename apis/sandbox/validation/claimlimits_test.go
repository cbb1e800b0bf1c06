// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// keys returns n keys with values of some bytes.
func keys(n, bytes int) map[string]string {
	all := make(map[string]string, n)
	for i := range n {
		all[fmt.Sprintf("k%d", i)] = strings.Repeat("x", bytes)
	}
	return all
}

func TestClaimLimits(t *testing.T) {
	type change = func(*v1alpha1.SandboxClaim)
	hour := &metav1.Duration{Duration: time.Hour}
	volume := runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"data","annotations":{"a":"` + strings.Repeat("x", 7<<10) + `"}},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)}
	tests := map[string]struct {
		change change
		limits func(*ClaimLimits)
		want   []string
	}{
		"longest times": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.ClaimTimeout, c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 24 * time.Hour}, hour
		}},
		"longer times": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.ClaimTimeout = &metav1.Duration{Duration: 24*time.Hour + 1}
				c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: time.Hour + 1}
			},
			want: []string{
				`spec.claimTimeout: Invalid value: "24h0m0.000000001s": claimTimeout must be at most 24h0m0s here`,
				`spec.waitReadyTimeout: Invalid value: "1h0m0.000000001s": waitReadyTimeout must be at most 1h0m0s here`,
			},
		},
		"times of an installation": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout, c.Spec.WaitReadyTimeout = hour, hour },
			limits: func(l *ClaimLimits) { l.MaxTimeout, l.MaxWaitReadyTimeout = 59*time.Minute, 2*time.Hour },
			want:   []string{`spec.claimTimeout: Invalid value: "1h0m0s": claimTimeout must be at most 59m0s here`},
		},
		"most metadata": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.Labels, c.Spec.Annotations = keys(10, 60), map[string]string{"note": strings.Repeat("x", 8<<10-10*62-4)}
		}},
		"more annotations": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Labels, c.Spec.Annotations = keys(10, 60), map[string]string{"note": strings.Repeat("x", 8<<10-10*62-3)}
			},
			want: []string{"spec.annotations: Too long: labels, annotations and additionalPodMetadata together may not be more than 8192 bytes: each sandbox gets them"},
		},
		"most keys": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.Labels, c.Spec.Annotations = keys(32, 1), keys(32, 1) }},
		"more keys": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Labels, c.Spec.Annotations = keys(33, 1), keys(32, 1) },
			want:   []string{"spec.labels: Too many: 65: labels, annotations and additionalPodMetadata together must have at most 64 keys"},
		},
		"most annotations of its own": {change: func(c *v1alpha1.SandboxClaim) {
			c.Annotations = map[string]string{"n": strings.Repeat("x", 64<<10-1)}
		}},
		"more annotations of its own": {
			change: func(c *v1alpha1.SandboxClaim) { c.Annotations = map[string]string{"n": strings.Repeat("x", 64<<10)} },
			want:   []string{"metadata.annotations: Too long: may not be more than 65536 bytes"},
		},
		"much on few": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.Replicas, c.Spec.Annotations = ptr.To(int32(4000)), map[string]string{"note": strings.Repeat("x", 8000)}
		}},
		"some on many": {change: func(c *v1alpha1.SandboxClaim) {
			c.Spec.Replicas, c.Spec.Annotations = ptr.To(int32(10000)), map[string]string{"note": strings.Repeat("x", 3000)}
		}},
		"much on many": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Replicas, c.Spec.Annotations = ptr.To(int32(10000)), map[string]string{"note": strings.Repeat("x", 8000)}
			},
			want: []string{"spec.replicas: Invalid value: 10000: labels, annotations, additionalPodMetadata, env, volumeClaimTemplates, envVars and dynamicVolumesMount are 16022 bytes for each sandbox " +
				"and 160220000 for all, but one claim may write 67108864; ask for fewer sandboxes, or for less on each"},
		},
		"escaped in six bytes": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Replicas, c.Spec.Annotations = ptr.To(int32(2000)), map[string]string{"note": strings.Repeat("<", 8000)}
			},
			want: []string{"spec.replicas: Invalid value: 2000: "},
		},
		"env on many": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Replicas, c.Spec.WarmPool = ptr.To(int32(10000)), v1alpha1.WarmPoolNone
				c.Spec.Env = []v1alpha1.SandboxClaimEnvVar{{Name: "A", Value: strings.Repeat("x", 7<<10)}}
			},
			want: []string{"spec.replicas: Invalid value: 10000: "},
		},
		"volumes on many": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Replicas, c.Spec.WarmPool = ptr.To(int32(10000)), v1alpha1.WarmPoolNone
				c.Spec.VolumeClaimTemplates = []runtime.RawExtension{volume}
			},
			want: []string{"spec.replicas: Invalid value: 10000: "},
		},
		"bytes of an installation": {
			change: func(c *v1alpha1.SandboxClaim) {
				c.Spec.Replicas, c.Spec.Labels = ptr.To(int32(10)), map[string]string{"a": "b"}
			},
			limits: func(l *ClaimLimits) { l.MaxBytes = 10*2*9 - 1 },
			want:   []string{"spec.replicas: Invalid value: 10: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			limits := DefaultClaimLimits()
			if tc.limits != nil {
				tc.limits(&limits)
			}
			c := claim(tc.change)
			expect(t, ValidateSandboxClaim(c, limits), tc.want)

			// A claim from before a bound was lowered can be changed otherwise.
			c.ResourceVersion = "1"
			changed := c.DeepCopy()
			changed.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -1}
			changed.Labels = map[string]string{"a": "b"}
			expect(t, ValidateSandboxClaimUpdate(changed, c, limits), nil)
		})
	}
}

// TestClaimLimitsOfUpdates is what an update changes beyond the bounds.
func TestClaimLimitsOfUpdates(t *testing.T) {
	old := claim(func(c *v1alpha1.SandboxClaim) {
		c.ResourceVersion = "1"
		c.Spec.ClaimTimeout = &metav1.Duration{Duration: 48 * time.Hour}
		c.Spec.Annotations = keys(100, 100)
	})
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaim)
		want   []string
	}{
		"lowered to the bound":           {change: func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout = &metav1.Duration{Duration: 24 * time.Hour} }},
		"fewer keys, few bytes":          {change: func(c *v1alpha1.SandboxClaim) { c.Spec.Annotations = keys(60, 100) }},
		"shorter, and still too long":    {change: func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout = &metav1.Duration{Duration: 47 * time.Hour} }},
		"fewer keys, and still too many": {change: func(c *v1alpha1.SandboxClaim) { c.Spec.Annotations = keys(99, 100) }},
		"as many bytes, and more keys": {
			change: func(c *v1alpha1.SandboxClaim) {
				for key, value := range c.Spec.Annotations {
					c.Spec.Annotations[key] = value[:50]
				}
				c.Spec.Labels = keys(2, 10)
			},
			want: []string{"spec.annotations: Too many: 102"},
		},
		"longer still": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout = &metav1.Duration{Duration: 49 * time.Hour} },
			want:   []string{"spec.claimTimeout: Invalid value: "},
		},
		"other times": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: 2 * time.Hour} },
			want:   []string{"spec.waitReadyTimeout: Invalid value: "},
		},
		"more labels": {
			change: func(c *v1alpha1.SandboxClaim) { c.Spec.Labels = map[string]string{"a": "b"} },
			want:   []string{"spec.annotations: Too long: "},
		},
		"more annotations of its own": {
			change: func(c *v1alpha1.SandboxClaim) { c.Annotations = map[string]string{"n": strings.Repeat("x", 64<<10)} },
			want:   []string{"metadata.annotations: Too long: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := old.DeepCopy()
			tc.change(changed)
			expect(t, ValidateSandboxClaimUpdate(changed, old, DefaultClaimLimits()), tc.want)
		})
	}
}
