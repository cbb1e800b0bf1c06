// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// currentData is the link to the files of a volume that are in force.
const currentData = "..data"

// secretVolumes are folders with the content of Secrets, kept up to date: what
// the kubelet does for pods that mount them.
type secretVolumes struct {
	dir     string
	factory informers.SharedInformerFactory
	stop    chan struct{}

	client    kubernetes.Interface
	namespace string

	mu sync.Mutex // held while files are written
	// written are the versions of the Secrets that the files are of.
	written map[string]uint64
	// failed is the last error of writing, for those that wait for a volume.
	failed error
}

func newSecretVolumes(client kubernetes.Interface, namespace, dir string) (*secretVolumes, error) {
	v := &secretVolumes{
		client: client, namespace: namespace, written: map[string]uint64{},
		dir:     dir,
		factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace)),
		stop:    make(chan struct{}),
	}
	_, err := v.factory.Core().V1().Secrets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    v.write,
		UpdateFunc: func(_, secret any) { v.write(secret) },
	})
	return v, err
}

// start begins to follow the Secrets.
func (v *secretVolumes) start() { v.factory.Start(v.stop) }

// close ends that, and returns when nothing is written any more.
func (v *secretVolumes) close() {
	close(v.stop)
	v.factory.Shutdown()
}

// path is the folder that stands for a Secret.
func (v *secretVolumes) path(secret string) string { return filepath.Join(v.dir, secret) }

// await returns when there is a Secret in each of the folders, or when a process
// that should have seen to it has ended.
func (v *secretVolumes) await(ctx context.Context, dirs []string, maker *Process) error {
	for _, dir := range dirs {
		err := wait.PollUntilContextTimeout(ctx, readyInterval, startPatience, true, func(context.Context) (bool, error) {
			if !maker.Running() {
				return false, fmt.Errorf("%s ended\n%s", maker.Name(), maker.tail())
			}
			_, err := os.Stat(filepath.Join(dir, currentData))
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			return true, err
		})
		if err != nil {
			v.mu.Lock()
			defer v.mu.Unlock()
			return errors.Join(fmt.Errorf("waiting for Secret %s: %w\n%s", filepath.Base(dir), err, maker.tail()), v.failed)
		}
	}
	return nil
}

func (v *secretVolumes) write(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.writeNewer(secret); err != nil {
		v.failed = fmt.Errorf("writing the files of Secret %s: %w", secret.Name, err)
	}
}

// writeNewer writes a Secret, unless the files are of a newer version of it.
func (v *secretVolumes) writeNewer(secret *corev1.Secret) error {
	version, err := strconv.ParseUint(secret.ResourceVersion, 10, 64)
	if err != nil || version <= v.written[secret.Name] {
		return err
	}
	v.written[secret.Name] = version
	return writeVolume(v.path(secret.Name), secret.Data)
}

// refresh writes a Secret as it is now, for a pod that is about to start. One that is not
// there is left out.
func (v *secretVolumes) refresh(ctx context.Context, name string) error {
	secret, err := v.client.CoreV1().Secrets(v.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.writeNewer(secret)
}

// writeVolume makes files the content of a folder, all at once, so that no
// reader sees a certificate beside the key of another one. As in a pod, the
// files are links through one link to the folder that has them:
//
//	tls.crt -> ..data/tls.crt
//	..data  -> ..2026-01-02T03-04-05.678
func writeVolume(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	link := filepath.Join(dir, currentData)
	before, err := os.Readlink(link)
	if err == nil && holds(filepath.Join(dir, before), files) {
		return nil
	}
	after := ".." + time.Now().UTC().Format("2006-01-02T15-04-05.000000000")
	if err := os.Mkdir(filepath.Join(dir, after), 0o700); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, after, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := os.Symlink(after, link+".new"); err != nil {
		return err
	}
	if err := os.Rename(link+".new", link); err != nil {
		return err
	}
	for name := range files {
		err := os.Symlink(filepath.Join(currentData, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if before == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(dir, before))
}

// holds reports whether a folder has exactly these files.
func holds(dir string, files map[string][]byte) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(files) {
		return false
	}
	for name, content := range files {
		kept, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(kept, content) {
			return false
		}
	}
	return true
}
