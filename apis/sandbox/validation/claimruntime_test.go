// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func mounts(n int) []v1alpha1.CSIMountConfig {
	all := make([]v1alpha1.CSIMountConfig, n)
	for i := range all {
		all[i] = v1alpha1.CSIMountConfig{PvName: "pv", MountPath: fmt.Sprintf("/data/%d", i)}
	}
	return all
}

func mountAt(path string) func(*v1alpha1.SandboxClaimSpec) {
	return func(s *v1alpha1.SandboxClaimSpec) {
		s.DynamicVolumesMount = []v1alpha1.CSIMountConfig{{PvName: "pv", MountPath: path}}
	}
}

func TestValidateClaimRuntime(t *testing.T) {
	attributes := func(pairs map[string]string) func(*v1alpha1.SandboxClaimSpec) {
		return func(s *v1alpha1.SandboxClaimSpec) {
			s.DynamicVolumesMount = mounts(1)
			s.DynamicVolumesMount[0].Attributes = pairs
		}
	}
	tests := map[string]struct {
		change func(*v1alpha1.SandboxClaimSpec)
		want   []string
	}{
		"null mounts":    {change: func(s *v1alpha1.SandboxClaimSpec) { s.DynamicVolumesMount = nil }},
		"variables":      {change: func(s *v1alpha1.SandboxClaimSpec) { s.EnvVars = map[string]string{"A": "", "with.dots and-more": "x"} }},
		"skipped":        {change: func(s *v1alpha1.SandboxClaimSpec) { s.SkipInitRuntime, s.EnvVars = true, map[string]string{"A": "b"} }},
		"most variables": {change: func(s *v1alpha1.SandboxClaimSpec) { s.EnvVars = keys(maxEnvVars, 1) }},
		"most mounts":    {change: func(s *v1alpha1.SandboxClaimSpec) { s.DynamicVolumesMount = mounts(maxMounts) }},
		"nested mounts": {change: func(s *v1alpha1.SandboxClaimSpec) {
			s.DynamicVolumesMount = append(mounts(1), v1alpha1.CSIMountConfig{PvName: "a.b", MountPath: "/data/0/sub", SubPath: "a/b..c", ReadOnly: true, MountID: "id"})
		}},
		"some attributes": {change: attributes(map[string]string{"bucket": "b"})},
		"a similar path":  {change: mountAt("/process")},
		"names of variables": {
			change: func(s *v1alpha1.SandboxClaimSpec) {
				s.EnvVars = map[string]string{"": "hidden", "A=B": "hidden", "É": "hidden"}
			},
			want: []string{`spec.envVars: Invalid value: "": `, `spec.envVars: Invalid value: "A=B": `, `spec.envVars: Invalid value: "É": `},
		},
		"NUL in a value": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.EnvVars = map[string]string{"A": "hidden\x00"} },
			want:   []string{"spec.envVars[A]: Forbidden: its value has a NUL character"},
		},
		"too many variables": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.EnvVars = keys(maxEnvVars+1, 1) },
			want:   []string{"spec.envVars: Too many: 257: must have at most 256 items"},
		},
		"too much": {
			change: func(s *v1alpha1.SandboxClaimSpec) {
				s.EnvVars = map[string]string{"A": strings.Repeat("x", maxEnvVarsBytes)}
			},
			want: []string{"spec.envVars: Too long: may not be more than 32768 bytes"},
		},
		"mounts without init": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.SkipInitRuntime, s.DynamicVolumesMount = true, mounts(1) },
			want:   []string{"spec.skipInitRuntime: Invalid value: true: init runtime is required when csi mount is specified"},
		},
		"too many mounts": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.DynamicVolumesMount = mounts(maxMounts + 1) },
			want:   []string{"spec.dynamicVolumesMount: Too many: 17: must have at most 16 items"},
		},
		"large mounts": {
			change: attributes(map[string]string{"a": strings.Repeat("x", maxMountsBytes)}),
			want:   []string{"spec.dynamicVolumesMount: Too long: may not be more than 16384 bytes"},
		},
		"empty mount": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.DynamicVolumesMount = make([]v1alpha1.CSIMountConfig, 1) },
			want:   []string{"spec.dynamicVolumesMount[0].pvName: Required value", "spec.dynamicVolumesMount[0].mountPath: Required value"},
		},
		"name of a volume": {
			change: func(s *v1alpha1.SandboxClaimSpec) {
				s.DynamicVolumesMount = []v1alpha1.CSIMountConfig{{PvName: "No_Name", MountPath: "/data"}}
			},
			want: []string{`spec.dynamicVolumesMount[0].pvName: Invalid value: "No_Name": `},
		},
		"one path twice": {
			change: func(s *v1alpha1.SandboxClaimSpec) { s.DynamicVolumesMount = append(mounts(1), mounts(1)...) },
			want:   []string{`spec.dynamicVolumesMount[1].mountPath: Duplicate value: "/data/0"`},
		},
		"subPath upwards": {
			change: func(s *v1alpha1.SandboxClaimSpec) {
				s.DynamicVolumesMount = mounts(2)
				s.DynamicVolumesMount[0].SubPath = "a/../.."
				s.DynamicVolumesMount[1].SubPath = "/a"
			},
			want: []string{
				`spec.dynamicVolumesMount[0].subPath: Invalid value: "a/../..": must be a relative path without ..`,
				`spec.dynamicVolumesMount[1].subPath: Invalid value: "/a": must be a relative path without ..`,
			},
		},
		"attributes of the system, spelled otherwise": {
			change: attributes(map[string]string{"CSI.storage.k8s.io/pod.name": "hidden", "SubPath": "hidden", "mountid": "hidden"}),
			want: []string{
				`spec.dynamicVolumesMount[0].attributes: Invalid value: "CSI.storage.k8s.io/pod.name": keys under`,
				`spec.dynamicVolumesMount[0].attributes: Invalid value: "SubPath": is a field of the mount`,
				`spec.dynamicVolumesMount[0].attributes: Invalid value: "mountid": is a field of the mount`,
			},
		},
		"attributes that differ only in case": {
			change: attributes(map[string]string{"Share": "hidden", "share": "hidden"}),
			want:   []string{`spec.dynamicVolumesMount[0].attributes: Invalid value: "share": differs from another key only in case`},
		},
		"attributes of the system": {
			change: attributes(map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": "hidden", "subPath": "hidden", "": "hidden"}),
			want: []string{
				`spec.dynamicVolumesMount[0].attributes: Invalid value: "": a key must not be empty`,
				`spec.dynamicVolumesMount[0].attributes: Invalid value: "csi.storage.k8s.io/serviceAccount.tokens": keys under`,
				`spec.dynamicVolumesMount[0].attributes: Invalid value: "subPath": is a field of the mount`,
			},
		},
	}
	for path, why := range map[string]string{
		"/": "must be an absolute path", "data": "must be an absolute path", "/data/": "must be an absolute path",
		"/a/../b": "must be an absolute path", "/a//b": "must be an absolute path", "/a:b": "must not have control characters",
		"/a\nb": "must not have control characters", "/proc": "must not cover", "/proc/1": "must not cover", "/sys/fs": "must not cover",
		"/dev/shm": "must not cover", "/mnt": "must not cover", "/mnt/envd/x": "must not cover", "/var/run/secrets/x": "must not cover",
	} {
		tests["mount at "+path] = struct {
			change func(*v1alpha1.SandboxClaimSpec)
			want   []string
		}{mountAt(path), []string{fmt.Sprintf("spec.dynamicVolumesMount[0].mountPath: Invalid value: %q: %s", path, why)}}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			errs := ValidateSandboxClaim(claim(func(c *v1alpha1.SandboxClaim) { tc.change(&c.Spec) }), DefaultClaimLimits())
			expect(t, errs, tc.want)
			if strings.Contains(fmt.Sprint(errs), "hidden") {
				t.Errorf("a value is told: %v", errs)
			}
		})
	}
}

func TestWhatWentIntoRuntimesIsImmutable(t *testing.T) {
	old := claim(func(c *v1alpha1.SandboxClaim) {
		c.Spec.EnvVars = map[string]string{"A": "old"}
		c.Spec.DynamicVolumesMount = mounts(1)
	})
	for name, tc := range map[string]struct {
		change func(*v1alpha1.SandboxClaimSpec)
		want   []string
	}{
		"nothing":            {change: func(*v1alpha1.SandboxClaimSpec) {}},
		"empty attributes":   {change: func(s *v1alpha1.SandboxClaimSpec) { s.DynamicVolumesMount[0].Attributes = map[string]string{} }},
		"a value":            {change: func(s *v1alpha1.SandboxClaimSpec) { s.EnvVars["A"] = "hidden" }, want: []string{"spec.envVars: Forbidden: is immutable"}},
		"no variables":       {change: func(s *v1alpha1.SandboxClaimSpec) { s.EnvVars = nil }, want: []string{"spec.envVars: Forbidden: is immutable"}},
		"a mount":            {change: func(s *v1alpha1.SandboxClaimSpec) { s.DynamicVolumesMount[0].ReadOnly = true }, want: []string{"spec.dynamicVolumesMount: Forbidden: is immutable"}},
		"no mounts":          {change: func(s *v1alpha1.SandboxClaimSpec) { s.DynamicVolumesMount = nil }, want: []string{"spec.dynamicVolumesMount: Forbidden: is immutable"}},
		"whether to skip it": {change: func(s *v1alpha1.SandboxClaimSpec) { s.SkipInitRuntime = true }, want: []string{"spec.skipInitRuntime: Forbidden: is immutable"}},
	} {
		t.Run(name, func(t *testing.T) {
			changed := old.DeepCopy()
			tc.change(&changed.Spec)
			expect(t, ValidateSandboxClaimUpdate(changed, old, DefaultClaimLimits()), tc.want)
		})
	}
}

// What is stored from before a bound can be changed otherwise.
func TestStoredRuntimeFieldsStayEditable(t *testing.T) {
	old := claim(func(c *v1alpha1.SandboxClaim) {
		c.Spec.EnvVars = keys(maxEnvVars+1, 1)
		c.Spec.DynamicVolumesMount = append(mounts(1), mounts(1)...)
		c.Spec.SkipInitRuntime = true
	})
	changed := old.DeepCopy()
	changed.Spec.TTLAfterCompleted = nil
	expect(t, ValidateSandboxClaimUpdate(changed, old, DefaultClaimLimits()), nil)
}

func TestSealedRequestsCountForEachSandbox(t *testing.T) {
	large := func(c *v1alpha1.SandboxClaim) {
		c.Spec.Replicas = ptr.To(int32(10000))
		c.Spec.EnvVars = map[string]string{"A": strings.Repeat("x", 10<<10)}
	}
	expect(t, ValidateSandboxClaim(claim(large), DefaultClaimLimits()), []string{"spec.replicas: Invalid value: 10000: labels, annotations, additionalPodMetadata, env, volumeClaimTemplates, envVars and dynamicVolumesMount are 13"})
}
