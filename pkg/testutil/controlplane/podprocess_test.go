// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestArguments(t *testing.T) {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	pod := func(change func(*corev1.Container)) workload {
		w := workload{
			pod: corev1.PodSpec{
				Containers: []corev1.Container{{
					Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: field("metadata.name")}, {Name: "LIMIT", Value: "1"}},
					VolumeMounts: []corev1.VolumeMount{
						{Name: "tls", MountPath: "/etc/tls"},
						{Name: "data", MountPath: "/var/data"},
					},
				}},
				Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}}},
			},
			claims: []string{"data"},
		}
		change(&w.pod.Containers[0])
		return w
	}
	cases := map[string]struct {
		workload workload
		flags    map[string]string
		want     []string
		wantErr  error
	}{
		"as they are": {
			workload: pod(func(c *corev1.Container) { c.Args = []string{"--a=1", "--b=x=y"} }),
			want:     []string{"--a=1", "--b=x=y"},
		},
		"variables": {
			workload: pod(func(c *corev1.Container) {
				c.Args = []string{"--name=$(POD_NAME)", "--url=https://$(POD_NAME).svc:$(LIMIT)", "--other=$(OTHER)"}
			}),
			want: []string{"--name=p-0", "--url=https://p-0.svc:1", "--other=$(OTHER)"},
		},
		"folders": {
			workload: pod(func(c *corev1.Container) {
				c.Args = []string{"--cert=/etc/tls/tls.crt", "--dir=/var/data", "--not=/etc/tlsx/y"}
			}),
			want: []string{"--cert=/here/tls/tls.crt", "--dir=/kept/data", "--not=/etc/tlsx/y"},
		},
		"other flags": {
			workload: pod(func(c *corev1.Container) { c.Args = []string{"--port=1", "--keep=2"} }),
			flags:    map[string]string{"port": "3", "z": "5", "more": "4"},
			want:     []string{"--port=3", "--keep=2", "--more=4", "--z=5"},
		},
		"a variable from elsewhere": {
			workload: pod(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{}}} }),
			wantErr:  errUnsupported,
		},
		"several containers": {
			workload: workload{pod: corev1.PodSpec{Containers: make([]corev1.Container, 2)}},
			wantErr:  errUnsupported,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			args, _, err := podProcess{
				name: "p-0", namespace: "ns", flags: tc.flags,
				volume: func(v corev1.Volume) (string, error) { return "/here/" + v.Name, nil },
				claim:  func(name string) string { return "/kept/" + name },
			}.arguments(tc.workload)
			if !errors.Is(err, tc.wantErr) {
				t.Fatalf("got %v, want %v", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}
