// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

const (
	apiServers  = "deployment/sandlot-apiserver"
	controllers = "deployment/sandlot-controller-manager"
)

// install applies the overlay external-etcd by kubectl, as a user would, and waits until its API is
// there.
func install(ctx context.Context, dir string, images *ourImages, etcd *etcd) error {
	overlay, err := writeOverlay(dir, images, etcd)
	if err != nil {
		return err
	}
	secret, err := json.Marshal(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "sandlot-etcd-client", Namespace: controlplane.Namespace},
		Data:       etcd.secret,
	})
	if err != nil {
		return err
	}
	if err := kubectl(ctx, nil, "apply", "--server-side", "--kustomize", overlay); err != nil {
		return err
	}
	if err := kubectl(ctx, secret, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	timeout := "--timeout=" + expect.Patience.String()
	for _, args := range [][]string{
		{"rollout", "status", apiServers, "--namespace=" + controlplane.Namespace, timeout},
		{"rollout", "status", controllers, "--namespace=" + controlplane.Namespace, timeout},
		{"wait", "--for=condition=Available", "apiservice/v1alpha1.agents.kruise.io", timeout},
	} {
		if err := kubectl(ctx, nil, args...); err != nil {
			pods, _, podsErr := plane.Kubectl(ctx, "", nil, "get", "pods,events", "--namespace="+controlplane.Namespace, "--output=wide")
			return errors.Join(fmt.Errorf("installing Sandlot: %w\n%s", err, pods), podsErr)
		}
	}
	return nil
}

// writeOverlay writes an overlay of the install that names our images and our etcd.
func writeOverlay(dir string, images *ourImages, etcd *etcd) (string, error) {
	root, err := program.Root()
	if err != nil {
		return "", err
	}
	// Both ends of a relative path are real ones to kustomize.
	folder, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	folder = filepath.Join(folder, "overlay")
	to, err := filepath.Rel(folder, filepath.Join(root, "artifacts", "deploy", "external-etcd"))
	if err != nil {
		return "", err
	}
	var content strings.Builder
	fmt.Fprintf(&content, "resources: [%s]\n", to)
	fmt.Fprintf(&content, "configMapGenerator:\n- {name: sandlot-etcd, namespace: %s, behavior: merge, literals: [servers=%s]}\n", controlplane.Namespace, etcd.url())
	content.WriteString("images:\n")
	for _, name := range []string{"sandlot-apiserver", "sandlot-controller-manager"} {
		image := images.names[name]
		tag := strings.LastIndex(image, ":")
		if tag < 0 {
			return "", fmt.Errorf("%s has no image %s: %v", images.archive, name, images.names)
		}
		fmt.Fprintf(&content, "- {name: ghcr.io/sandlot-io/%s, newName: %s, newTag: %q}\n", name, image[:tag], image[tag+1:])
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	return folder, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content.String()), 0o600)
}

func kubectl(ctx context.Context, stdin []byte, args ...string) error {
	_, _, err := plane.Kubectl(ctx, "", bytes.NewReader(stdin), args...)
	return err
}
