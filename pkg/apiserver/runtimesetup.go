// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/podaddress"
	"github.com/sandlot-io/sandlot/pkg/runtime"
)

// newRuntimeSetup returns what sets up the agent-runtimes of sandboxes. Its key is made if
// the store has none. Where volumes is nil, without a cluster, no volumes can be mounted, and without certificates
// no runtime be called that speaks TLS.
func newRuntimeSetup(
	ctx context.Context, etcd *clientv3.Client, config *storagebackend.ConfigForResource, volumes agentruntime.VolumesGetter,
	pods *podaddress.Verifier, sandboxes *genericregistry.Store, extra *ExtraConfig,
) (*agentruntime.Setup, error) {
	keyring, err := agentruntime.Load(ctx, etcd, config.Prefix, config.Transformer)
	if err != nil {
		return nil, fmt.Errorf("the key for agent-runtimes: %w", err)
	}
	options := runtime.Options{AttemptTimeout: extra.RuntimeAttempt}
	if extra.RuntimeCertificates != nil {
		options.TLS = extra.RuntimeCertificates.TLS
	}
	return &agentruntime.Setup{
		Keyring: keyring,
		Client:  runtime.New(options),
		Volumes: agentruntime.NewVolumes(volumes),
		Pods:    pods,
		Sandbox: func(ctx context.Context, namespace, name string) (*v1alpha1.Sandbox, error) {
			return get[*v1alpha1.Sandbox](ctx, sandboxes, namespace, name, "0")
		},
		Newest: func(ctx context.Context, namespace, name string) (*v1alpha1.Sandbox, error) {
			return get[*v1alpha1.Sandbox](ctx, sandboxes, namespace, name, "")
		},
	}, nil
}

// pageOfSandboxes is how many sandboxes are read at a time to see what they use.
const pageOfSandboxes = 500

// useIn returns which versions of the key for agent-runtimes the sandboxes of a store use.
func useIn(sandboxes *genericregistry.Store) func(context.Context) (agentruntime.Use, error) {
	return func(ctx context.Context) (use agentruntime.Use, err error) {
		options := &metainternalversion.ListOptions{Limit: pageOfSandboxes}
		for {
			obj, err := sandboxes.List(ctx, options)
			if err != nil {
				return use, fmt.Errorf("listing sandboxes: %w", err)
			}
			list, err := typed[*v1alpha1.SandboxList](obj)
			if err != nil {
				return use, err
			}
			for i := range list.Items {
				use.Add(&list.Items[i])
			}
			if options.Continue = list.Continue; options.Continue == "" {
				return use, nil
			}
		}
	}
}

// changeIn changes sandboxes of a store, each at the resourceVersion at which it was seen.
func changeIn(sandboxes *genericregistry.Store) agentruntime.Change {
	return func(ctx context.Context, namespace, name string, change func(*v1alpha1.Sandbox) error) error {
		ctx = genericapirequest.WithNamespace(ctx, namespace)
		key, err := sandboxes.KeyFunc(ctx, name)
		if err != nil {
			return err
		}
		update := func(obj apiruntime.Object, _ storage.ResponseMeta) (apiruntime.Object, *uint64, error) {
			sb, err := typed[*v1alpha1.Sandbox](obj)
			if err == nil {
				err = change(sb)
			}
			return sb, nil, err
		}
		err = sandboxes.Storage.GuaranteedUpdate(ctx, key, &v1alpha1.Sandbox{}, false, nil, update, false, nil)
		if storage.IsNotFound(err) {
			return agentruntime.ErrObsolete
		}
		return err
	}
}

// addRuntimeCertificates lets the server follow changes of the files.
func (c CompletedConfig) addRuntimeCertificates(server *genericapiserver.GenericAPIServer) error {
	certificates := c.extraConfig.RuntimeCertificates
	if certificates == nil {
		return nil
	}
	err := server.AddPostStartHook("runtime-certificates", func(hook genericapiserver.PostStartHookContext) error {
		go certificates.Run(hook)
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the hook of the certificates for agent-runtimes: %w", err)
	}
	return nil
}
