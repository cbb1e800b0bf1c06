// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// initialize runs the init containers of a pod, each until it ends well, and returns what a
// kubelet would say of them.
func (n *processNode) initialize(ctx context.Context, pod *corev1.Pod) ([]corev1.ContainerStatus, error) {
	var statuses []corev1.ContainerStatus
	for _, container := range pod.Spec.InitContainers {
		words := filepath.Join(n.sandlot.dir, "termination", string(pod.UID))
		if err := os.MkdirAll(filepath.Dir(words), 0o700); err != nil {
			return nil, err
		}
		var last error
		err := wait.PollUntilContextCancel(ctx, readyInterval, true, func(ctx context.Context) (bool, error) {
			last = n.runInit(ctx, pod, container, words)
			return last == nil, nil
		})
		if err != nil {
			return nil, errors.Join(err, last)
		}
		message, err := os.ReadFile(words)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		statuses = append(statuses, corev1.ContainerStatus{Name: container.Name, Ready: true, Image: container.Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: string(message), FinishedAt: metav1.Now()}}})
	}
	return statuses, nil
}

// runInit runs the init container of a member of the store.
func (n *processNode) runInit(ctx context.Context, pod *corev1.Pod, container corev1.Container, words string) error {
	s := n.sandlot
	var member *Process
	if member = s.etcd; member == nil {
		member = s.apiServers[0]
	}
	flags := map[string]string{"from": fmt.Sprintf("https://localhost:%d", s.restorePort), "termination-log": words}
	if s.etcd != nil { // one member, at another address
		for _, flag := range []string{"initial-cluster", "initial-advertise-peer-urls"} {
			flags[flag] = s.etcdFlags[flag]
		}
	}
	process := s.podProcess(member.Name(), flags)
	process.volume = s.refreshed(ctx, process.volume)
	args, env, err := process.argumentsOf(workload{pod: pod.Spec, claims: []string{"data"}}, container)
	if err != nil {
		return err
	}
	program, err := s.path(programOf(container.Image))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.plane.logDir(), member.Name()+"-"+container.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd.Run()
}

// jobProcess makes the process of the container of a pod that ends by itself.
func (s *Sandlot) jobProcess(ctx context.Context, pod *corev1.Pod) (*Process, error) {
	container := pod.Spec.Containers[0]
	scratch := filepath.Join(s.dir, "scratch", pod.Name)
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	flags := map[string]string{"scratch-dir": scratch}
	switch container.Args[0] {
	case "backup":
		token, err := s.tokenFile(ctx, pod.Spec.ServiceAccountName)
		if err != nil {
			return nil, err
		}
		flags["token-file"] = token
		flags["apiserver"] = fmt.Sprintf("https://localhost:%d", s.balancerPort)
	case "check":
		kubeconfig, err := s.plane.ServiceAccountKubeconfig(ctx, s.options.Namespace, pod.Spec.ServiceAccountName)
		if err != nil {
			return nil, err
		}
		flags = map[string]string{"kubeconfig": kubeconfig}
	case "restore":
		kubeconfig, err := s.plane.ServiceAccountKubeconfig(ctx, s.options.Namespace, pod.Spec.ServiceAccountName)
		if err != nil {
			return nil, err
		}
		flags["kubeconfig"] = kubeconfig
		flags["bind-address"] = address(s.restorePort)
		flags["members"] = "1"
	}
	process := s.podProcess(pod.Name, flags)
	process.labels = pod.Labels
	process.config = func(name, key string) (string, bool) {
		config, err := s.secrets.client.CoreV1().ConfigMaps(s.options.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", false
		}
		value, ok := config.Data[key]
		return value, ok
	}
	process.volume = s.refreshed(ctx, process.volume)
	args, env, err := process.arguments(workload{pod: pod.Spec})
	if err != nil {
		return nil, err
	}
	program, err := s.path(programOf(container.Image))
	if err != nil {
		return nil, err
	}
	return newProcess(command{name: pod.Name, path: program, args: args, env: env}, s.plane.logDir()), nil
}

// programOf is the program that an image is named for: registry/PROGRAM:tag.
func programOf(image string) string {
	name := path.Base(image)
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// refreshed makes the folders of Secrets and ConfigMaps what these are now.
func (s *Sandlot) refreshed(ctx context.Context, volume func(corev1.Volume) (string, error)) func(corev1.Volume) (string, error) {
	return func(v corev1.Volume) (string, error) {
		switch {
		case v.Secret != nil:
			if err := s.secrets.refresh(ctx, v.Secret.SecretName); err != nil {
				return "", err
			}
		case v.ConfigMap != nil:
			config, err := s.secrets.client.CoreV1().ConfigMaps(s.options.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			files := map[string][]byte{}
			for name, text := range config.Data {
				files[name] = []byte(text)
			}
			maps.Copy(files, config.BinaryData)
			dir := filepath.Join(s.dir, "configmaps", v.ConfigMap.Name)
			return dir, writeVolume(dir, files)
		case v.PersistentVolumeClaim != nil:
			dir := filepath.Join(s.dir, "volumes", v.PersistentVolumeClaim.ClaimName)
			return dir, os.MkdirAll(dir, 0o700)
		}
		return volume(v)
	}
}

// tokenFile returns a file with a new token of a service account.
func (s *Sandlot) tokenFile(ctx context.Context, account string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))}}
	token, err := s.secrets.client.CoreV1().ServiceAccounts(s.options.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for a token of service account %s: %w", account, err)
	}
	file := filepath.Join(s.dir, "token-"+account)
	return file, os.WriteFile(file, []byte(token.Status.Token), 0o600)
}
