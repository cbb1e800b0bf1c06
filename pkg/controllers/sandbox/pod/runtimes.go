// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// runtimesConfigMap is the name of the ConfigMap with the runtimes,
// in the namespace of the installation. It is OpenKruise's; the form of its entries
// is ours (see podtemplate.ParseRuntime).
const runtimesConfigMap = "sandbox-injection-config"

const (
	// injectedKept is how many templates with runtimes in them are remembered, and
	// injectedMax how large one may be, in bytes: 4 MiB in all. The others are made for
	// each pod, which takes far less than the pod does.
	injectedKept = 64
	injectedMax  = 64 << 10
)

// injector injects runtimes into pod templates.
type injector struct {
	reader client.Reader
	// synced reports whether the reader has synced. A read would wait for that.
	synced func() bool
	key    types.NamespacedName
	done   *lru.Cache

	mu     sync.Mutex
	parsed parsed
}

// parsed are the runtimes of one version of the ConfigMap, as far as they were asked
// for.
type parsed struct {
	uid      types.UID
	version  string
	runtimes map[string]parsedRuntime
}

type parsedRuntime struct {
	runtime *podtemplate.Runtime
	err     error
}

func newInjector(reader client.Reader, namespace string) *injector {
	return &injector{
		reader: reader,
		synced: func() bool { return true },
		key:    types.NamespacedName{Namespace: namespace, Name: runtimesConfigMap},
		done:   lru.New(injectedKept),
	}
}

// injection is the key of a template with runtimes in it: all that it is made from.
type injection struct {
	template [sha256.Size]byte
	names    string
	uid      types.UID
	version  string
}

type injected struct {
	template *runtime.RawExtension
	err      error
}

// inject returns the pod template of a sandbox that has one, with its runtimes. An
// error that a change of the ConfigMap can mend is a templateError.
func (i *injector) inject(ctx context.Context, sandbox *v1alpha1.Sandbox) (*runtime.RawExtension, error) {
	template := sandbox.Spec.Template
	if len(sandbox.Spec.Runtimes) == 0 {
		return template, nil
	}
	if !i.synced() {
		return nil, templateError{reason: v1alpha1.ReasonRuntimeNotFound, error: fmt.Errorf(
			"runtime %q: ConfigMap %s, which is to have it, cannot be read yet: see the log of the controller manager", sandbox.Spec.Runtimes[0].Name, i.key)}
	}
	config := &corev1.ConfigMap{}
	err := i.reader.Get(ctx, i.key, config, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil, templateError{reason: v1alpha1.ReasonRuntimeNotFound, error: fmt.Errorf(
			"runtime %q: there is no ConfigMap %s, which is to have it", sandbox.Spec.Runtimes[0].Name, i.key)}
	case err != nil:
		return nil, fmt.Errorf("getting ConfigMap %s: %w", i.key, err)
	}
	names := make([]string, 0, len(sandbox.Spec.Runtimes))
	for _, wanted := range sandbox.Spec.Runtimes {
		names = append(names, wanted.Name)
	}
	if sandbox.Spec.TemplateRef == nil {
		return i.injected(config, template, names) // no other sandbox is likely to have this one
	}
	raw, err := template.MarshalJSON()
	if err != nil {
		return nil, unusable(err)
	}
	key := injection{
		template: sha256.Sum256(raw), names: strings.Join(names, "/"), // no name has one
		uid: config.UID, version: config.ResourceVersion,
	}
	if known, ok := i.done.Get(key); ok {
		return known.(injected).template, known.(injected).err
	}
	var made injected
	made.template, made.err = i.injected(config, template, names)
	if made.template == nil || len(made.template.Raw) <= injectedMax {
		i.done.Add(key, made)
	}
	return made.template, made.err
}

// injected puts the runtimes in one by one, so that an error names the one that it
// is about.
func (i *injector) injected(config *corev1.ConfigMap, template *runtime.RawExtension, names []string) (*runtime.RawExtension, error) {
	wrong := func(name string, err error) error {
		return templateError{reason: v1alpha1.ReasonInvalidRuntime, error: fmt.Errorf("runtime %q of ConfigMap %s: %w", name, i.key, err)}
	}
	runtimes := make([]*podtemplate.Runtime, 0, len(names))
	for _, name := range names {
		if _, ok := config.Data[name]; !ok {
			return nil, templateError{reason: v1alpha1.ReasonRuntimeNotFound,
				error: fmt.Errorf("runtime %q: ConfigMap %s has no such key", name, i.key)}
		}
		found, err := i.parse(config, name)
		if err != nil {
			return nil, wrong(name, err)
		}
		runtimes = append(runtimes, found)
	}
	merged, err := podtemplate.Inject(template, runtimes...)
	if err == nil {
		return merged, nil
	}
	// Each by itself may be good, and not what comes of all.
	for n, name := range names {
		if _, err := podtemplate.Inject(template, runtimes[:n+1]...); err != nil {
			return nil, wrong(name, err)
		}
	}
	return nil, wrong(strings.Join(names, ", "), err)
}

// parse reads a runtime that the ConfigMap has, once for each version of that.
func (i *injector) parse(config *corev1.ConfigMap, name string) (*podtemplate.Runtime, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.parsed.uid != config.UID || i.parsed.version != config.ResourceVersion {
		i.parsed = parsed{uid: config.UID, version: config.ResourceVersion, runtimes: map[string]parsedRuntime{}}
	}
	found, ok := i.parsed.runtimes[name]
	if !ok {
		found.runtime, found.err = podtemplate.ParseRuntime(config.Data[name])
		i.parsed.runtimes[name] = found
	}
	return found.runtime, found.err
}
