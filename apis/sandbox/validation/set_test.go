// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func set(t *testing.T, change func(*v1alpha1.SandboxSet)) *v1alpha1.SandboxSet {
	t.Helper()
	s := &v1alpha1.SandboxSet{ObjectMeta: meta("pool"), Spec: v1alpha1.SandboxSetSpec{
		Replicas:                ptr.To(int32(3)),
		EmbeddedSandboxTemplate: v1alpha1.EmbeddedSandboxTemplate{Template: rawTemplate(t)},
	}}
	v1alpha1.SetObjectDefaults_SandboxSet(s)
	if change != nil {
		change(s)
	}
	return s
}

func updateType(kind v1alpha1.SandboxSetUpdateType) func(*v1alpha1.SandboxSet) {
	return func(s *v1alpha1.SandboxSet) { s.Spec.UpdateStrategy.Type = kind }
}

func TestValidateSandboxSet(t *testing.T) {
	maxUnavailable := func(value intstr.IntOrString) func(*v1alpha1.SandboxSet) {
		return func(s *v1alpha1.SandboxSet) {
			s.Spec.ScaleStrategy.MaxUnavailable = &value
			s.Spec.UpdateStrategy.MaxUnavailable = &value
		}
	}
	burst := func(n int32) func(*v1alpha1.SandboxSet) {
		return func(s *v1alpha1.SandboxSet) { s.Spec.ScaleStrategy.Burst = &n }
	}
	fresh := func(n int32) func(*v1alpha1.SandboxSet) {
		return func(s *v1alpha1.SandboxSet) { s.Spec.MaxFreshSandboxes = &n }
	}
	tests := map[string]struct {
		change func(*v1alpha1.SandboxSet)
		want   []string
	}{
		"no fresh sandboxes":   {change: fresh(0)},
		"many fresh sandboxes": {change: fresh(10000)},
		"negative fresh sandboxes": {
			change: fresh(-1),
			want:   []string{"spec.maxFreshSandboxes: Invalid value: -1: must be from 0 to 1000"},
		},
		"too many fresh sandboxes": {
			change: fresh(10001),
			want:   []string{"spec.maxFreshSandboxes: Invalid value: 10001: must be from 0 to 10000"},
		},
		"minimal":   {},
		"rolls out": {change: updateType(v1alpha1.SetUpdateRolling)},
		"recreates": {change: updateType(v1alpha1.SetUpdateRecreate)},
		"replenish": {change: updateType(v1alpha1.SetUpdateOnReplenish)},
		"another way to update": {
			change: updateType("Sometimes"),
			want:   []string{`spec.updateStrategy.type: Unsupported value: "Sometimes": supported values: "RollingUpdate", "Recreate", "OnReplenish"`},
		},
		"empty pool": {change: func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = ptr.To(int32(0)) }},
		"burst":      {change: burst(10000)},
		"no burst":   {change: burst(0)},
		"no history": {change: func(s *v1alpha1.SandboxSet) { s.Spec.RevisionHistoryLimit = ptr.To(int32(0)) }},
		"history":    {change: func(s *v1alpha1.SandboxSet) { s.Spec.RevisionHistoryLimit = ptr.To(int32(100)) }},
		"negative history": {
			change: func(s *v1alpha1.SandboxSet) { s.Spec.RevisionHistoryLimit = ptr.To(int32(-1)) },
			want:   []string{"spec.revisionHistoryLimit: Invalid value: -1: must be from 0 to 100"},
		},
		"long history": {
			change: func(s *v1alpha1.SandboxSet) { s.Spec.RevisionHistoryLimit = ptr.To(int32(101)) },
			want:   []string{"spec.revisionHistoryLimit: Invalid value: 101: must be from 0 to 100"},
		},
		"large pool": {change: func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = ptr.To(int32(100000)) }},
		"number":     {change: maxUnavailable(intstr.FromInt32(0))},
		"percentage": {change: maxUnavailable(intstr.FromString("50%"))},
		"over 100%":  {change: maxUnavailable(intstr.FromString("150%"))},
		"other template": {change: func(s *v1alpha1.SandboxSet) {
			s.Spec.Template = rawJSON("{\"spec\":{\"containers\":[{\"name\":\"a\",\"image\":\"b\",\"fromTheFuture\":1}]}}")
		}},

		"long name": {
			change: func(s *v1alpha1.SandboxSet) { s.Name = longName },
			want:   []string{"metadata.name: Invalid value: "},
		},
		"no replicas": {
			change: func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = nil },
			want:   []string{"spec.replicas: Required value: number of unused sandboxes to keep"},
		},
		"negative replicas": {
			change: func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = ptr.To(int32(-1)) },
			want:   []string{"spec.replicas: Invalid value: -1: replicas cannot be negative"},
		},
		"1e9 replicas": {
			change: func(s *v1alpha1.SandboxSet) { s.Spec.Replicas = ptr.To(int32(1e9)) },
			want:   []string{"spec.replicas: Invalid value: 1000000000: must be at most 1000000"},
		},
		"negative burst": {
			change: burst(-1),
			want:   []string{"spec.scaleStrategy.burst: Invalid value: -1: must be from 0 to 1000"},
		},
		"large burst": {
			change: burst(10001),
			want:   []string{"spec.scaleStrategy.burst: Invalid value: 10001: must be from 0 to 10000"},
		},
		"no template": {
			change: func(s *v1alpha1.SandboxSet) { s.Spec.Template = nil },
			want:   []string{"spec.template: Required value: template is required"},
		},
		"template and reference": {
			change: func(s *v1alpha1.SandboxSet) { s.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: "t"} },
			want:   []string{"spec.templateRef: Forbidden: templateRef and podtemplate is mutual exclusive"},
		},
		"bad template": {
			change: func(s *v1alpha1.SandboxSet) { s.Spec.Template = rawJSON("{}") },
			want:   []string{"spec.template.spec.containers: Required value"},
		},
		"not a percentage": {
			change: maxUnavailable(intstr.FromString("half")),
			want: []string{
				"spec.scaleStrategy.maxUnavailable: Invalid value: \"half\": maxUnavailable is invalid",
				"spec.updateStrategy.maxUnavailable: Invalid value: \"half\": maxUnavailable is invalid",
			},
		},
		"negative number": {
			change: maxUnavailable(intstr.FromInt32(-1)),
			want: []string{
				"spec.scaleStrategy.maxUnavailable: Invalid value: \"-1\": maxUnavailable is invalid",
				"spec.updateStrategy.maxUnavailable: Invalid value: \"-1\": maxUnavailable is invalid",
			},
		},
		"negative percentage": {
			change: maxUnavailable(intstr.FromString("-5%")),
			want:   []string{"spec.scaleStrategy.maxUnavailable: ", "spec.updateStrategy.maxUnavailable: "},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := set(t, tc.change)
			expect(t, ValidateSandboxSet(changed), tc.want)
			// The rules of an update are the same; only names are left alone.
			if name != "long name" {
				expect(t, ValidateSandboxSetUpdate(changed, set(t, nil)), tc.want)
			}
		})
	}
}

func TestValidateSandboxSetStatusUpdate(t *testing.T) {
	tests := map[string]struct {
		status v1alpha1.SandboxSetStatus
		want   []string
	}{
		"empty": {},
		"full": {status: v1alpha1.SandboxSetStatus{
			ObservedGeneration: 2, Replicas: 3, AvailableReplicas: 2, UpdatedReplicas: 3, UpdatedAvailableReplicas: 2,
			UpdateRevision: "abc", Selector: "a=b", Conditions: []metav1.Condition{condition()},
		}},
		"negative numbers": {
			status: v1alpha1.SandboxSetStatus{
				ObservedGeneration: -1, Replicas: -1, AvailableReplicas: -1, UpdatedReplicas: -1, UpdatedAvailableReplicas: -1,
			},
			want: []string{
				"status.observedGeneration: Invalid value: -1",
				"status.replicas: Invalid value: -1",
				"status.availableReplicas: Invalid value: -1",
				"status.updatedReplicas: Invalid value: -1",
				"status.updatedAvailableReplicas: Invalid value: -1",
			},
		},
		"conditions": {
			status: v1alpha1.SandboxSetStatus{Conditions: []metav1.Condition{condition(), condition()}},
			want:   []string{"status.conditions[1]"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			changed := set(t, func(s *v1alpha1.SandboxSet) { s.Status = tc.status })
			expect(t, ValidateSandboxSetStatusUpdate(changed, set(t, nil)), tc.want)
		})
	}
}
