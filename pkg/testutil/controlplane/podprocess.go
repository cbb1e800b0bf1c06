// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var errUnsupported = errors.New("not supported for a process")

// podProcess is how a pod becomes a process: its arguments, with the folders here
// instead of its mounts and some flags set otherwise.
type podProcess struct {
	name      string // of the pod and of the process
	namespace string // of the pod
	// flags are set in place of those of the same name, or in addition.
	flags map[string]string
	// volume returns the folder that stands for a volume.
	volume func(corev1.Volume) (string, error)
	// claim returns the folder that stands for a volume that is kept.
	claim func(name string) string
	// labels are those of the pod.
	labels map[string]string
	// config returns what a ConfigMap has under a key, and reports whether it has. Nil has none.
	config func(name, key string) (string, bool)
}

// arguments returns the arguments and the environment of the only container.
func (p podProcess) arguments(w workload) (args, env []string, err error) {
	if len(w.pod.Containers) != 1 {
		return nil, nil, fmt.Errorf("%s: %d containers: %w", p.name, len(w.pod.Containers), errUnsupported)
	}
	return p.argumentsOf(w, w.pod.Containers[0])
}

// argumentsOf returns the arguments and the environment of a container.
func (p podProcess) argumentsOf(w workload, container corev1.Container) (args, env []string, err error) {
	var expansions []string
	for _, variable := range container.Env {
		value, ok, err := p.value(variable)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: variable %s: %w", p.name, variable.Name, err)
		}
		if !ok {
			continue
		}
		env = append(env, variable.Name+"="+value)
		expansions = append(expansions, "$("+variable.Name+")", value)
	}
	mounts, err := p.mounts(w, container)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", p.name, err)
	}
	missing := maps.Clone(p.flags)
	for _, arg := range container.Args {
		arg = strings.NewReplacer(expansions...).Replace(arg)
		name, value, isFlag := strings.Cut(arg, "=")
		if !isFlag { // the name of a command
			args = append(args, arg)
			continue
		}
		if flag, ok := p.flags[strings.TrimPrefix(name, "--")]; ok {
			delete(missing, strings.TrimPrefix(name, "--"))
			value = flag
		}
		for _, mount := range mounts {
			if below, ok := strings.CutPrefix(value, mount.path); ok && (below == "" || below[0] == '/') {
				value = mount.dir + below
				break
			}
		}
		args = append(args, name+"="+value)
	}
	for _, flag := range slices.Sorted(maps.Keys(missing)) {
		args = append(args, "--"+flag+"="+missing[flag])
	}
	return args, env, nil
}

// value returns the value of a variable, or false if it is optional and not there.
func (p podProcess) value(variable corev1.EnvVar) (string, bool, error) {
	if variable.ValueFrom == nil {
		return variable.Value, true, nil
	}
	if field := variable.ValueFrom.FieldRef; field != nil {
		switch field.FieldPath {
		case "metadata.name":
			return p.name, true, nil
		case "metadata.namespace":
			return p.namespace, true, nil
		case "status.podIP", "status.hostIP":
			return loopback, true, nil
		}
		if label, ok := strings.CutPrefix(field.FieldPath, "metadata.labels['"); ok {
			return p.labels[strings.TrimSuffix(label, "']")], true, nil
		}
	}
	if ref := variable.ValueFrom.ConfigMapKeyRef; ref != nil && ref.Optional != nil && *ref.Optional && p.config != nil {
		value, ok := p.config(ref.Name, ref.Key)
		return value, ok, nil
	}
	return "", false, errUnsupported
}

type mount struct {
	path, dir string
}

func (p podProcess) mounts(w workload, container corev1.Container) ([]mount, error) {
	var mounts []mount
	for _, m := range container.VolumeMounts {
		if slices.Contains(w.claims, m.Name) {
			mounts = append(mounts, mount{m.MountPath, p.claim(m.Name)})
			continue
		}
		i := slices.IndexFunc(w.pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("there is no volume %s", m.Name)
		}
		dir, err := p.volume(w.pod.Volumes[i])
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", m.Name, err)
		}
		mounts = append(mounts, mount{filepath.Clean(m.MountPath), dir})
	}
	return mounts, nil
}
