// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"path"

	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver/agentruntime"
	"github.com/sandlot-io/sandlot/pkg/apiserver/storekeys"
	"github.com/sandlot-io/sandlot/pkg/store/reencryption"
)

// newRewriter returns what encrypts anew what is stored, or nil where nothing says how
// values are encrypted.
func newRewriter(getter generic.RESTOptionsGetter, etcd *etcdConnection, members *membership, keyring *agentruntime.Keyring, clk clock.PassiveClock) (*reencryption.Rewriter, error) {
	var resources []reencryption.Resource
	for _, name := range storekeys.Resources() {
		options, err := getter.GetRESTOptions(v1alpha1.Resource(name), nil)
		if err != nil {
			return nil, fmt.Errorf("storage options of %s: %w", name, err)
		}
		transformer := options.StorageConfig.Transformer
		if transformer == nil {
			return nil, nil
		}
		resources = append(resources, reencryption.Resource{
			Prefix:      path.Join("/", etcd.prefix, options.ResourcePrefix) + "/",
			Transformer: transformer,
		})
		if name == storekeys.RuntimeKeyResource {
			resources = append(resources, reencryption.Resource{
				Prefix:      path.Join("/", etcd.prefix, storekeys.RuntimeKey),
				Transformer: transformer,
				Renew:       func(plain []byte) ([]byte, error) { return agentruntime.AddVersion(plain, clk.Now()) },
			})
		}
	}
	r := reencryption.New(reencryption.Options{
		KV: etcd.Client, StoragePrefix: etcd.prefix, Resources: resources, Refresh: keyring.Refresh,
		Servers: members, Clock: clock.RealClock{},
	})
	return r, r.Retract(context.Background()) // before this server writes
}
