// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"context"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
)

// Store is what is read to find what a claim can get.
type Store interface {
	// Sandbox returns a sandbox from the watch cache, no older than a resourceVersion;
	// it may be newer in etcd, which the transaction finds out. The caller must not
	// change it. nil, nil means that there is none.
	Sandbox(ctx context.Context, namespace, name string, notOlderThan uint64) (*v1alpha1.Sandbox, error)

	// Lookup returns templates from the watch cache, or, if the cache does not know
	// one, from etcd, so that a template made a moment ago is found.
	podtemplate.Lookup

	// TemplatesNow returns a Lookup of templates as they are in etcd now.
	TemplatesNow() podtemplate.Lookup

	// Set returns a set from the watch cache, or, if the cache does not know it, from
	// etcd, so that a set made a moment ago is found. The caller must not change it.
	// nil, nil means that there is none.
	Set(ctx context.Context, namespace, name string) (*v1alpha1.SandboxSet, error)

	// Sets returns the sets of a namespace as they are in etcd now, and as of which
	// resourceVersion. The caller must not change them.
	Sets(ctx context.Context, namespace string) ([]*v1alpha1.SandboxSet, uint64, error)

	// PoolSandboxes returns the unclaimed sandboxes of a set as they are in
	// etcd now, and as of which resourceVersion. The caller must not change
	// them.
	PoolSandboxes(ctx context.Context, namespace, set string) ([]*v1alpha1.Sandbox, uint64, error)
}
