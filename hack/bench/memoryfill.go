// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// claimedNamespace has the claims of a filled store, and their sandboxes.
const claimedNamespace = "bench-claimed"

// fillWithClaims makes the data of a server, which does not run then, with a pool that is
// held, and claims of one sandbox each. It returns one of the sandboxes.
func fillWithClaims(ctx context.Context, o *settings, dir string, waiting pool, claims int) (*v1alpha1.Sandbox, error) {
	claimed := pool{namespace: claimedNamespace, size: 1, pods: waiting.pods}
	pools := []pool{waiting, claimed}
	models, claim, err := makeClaimed(ctx, o, dir, pools)
	if err != nil {
		return nil, fmt.Errorf("making the first sandboxes: %w", err)
	}
	if err := copyModels(ctx, filepath.Join(dir, "etcd"), pools[:1], models[:1]); err != nil {
		return nil, fmt.Errorf("filling the pool: %w", err)
	}
	if err := copyClaims(ctx, filepath.Join(dir, "etcd"), claim, models[1], claims); err != nil {
		return nil, fmt.Errorf("filling in claims: %w", err)
	}
	return models[0], nil
}

// makeClaimed lets a server make one sandbox of each pool, of which the last one's is claimed.
func makeClaimed(ctx context.Context, o *settings, dir string, pools []pool) (models []*v1alpha1.Sandbox, claim *v1alpha1.SandboxClaim, err error) {
	s, err := startServer(ctx, o.program, dir, 1)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, p := range pools {
		model, err := s.makeModel(ctx, p)
		if err != nil {
			return nil, nil, err
		}
		models = append(models, model)
	}
	last := len(pools) - 1
	claims := newClaimer(s, pools[last])
	if claim, err = claims.create(ctx, 0, claims.claim(1)); err != nil {
		return nil, nil, err
	}
	if err := claims.take(claim, 1); err != nil {
		return nil, nil, err
	}
	models[last], err = s.clients[0].AgentsV1alpha1().Sandboxes(claimedNamespace).Get(ctx, models[last].Name, metav1.GetOptions{})
	return models, claim, err
}

// copyClaims writes copies of a claim and of its one sandbox, so that there are n.
func copyClaims(ctx context.Context, dir string, claim *v1alpha1.SandboxClaim, sandbox *v1alpha1.Sandbox, n int) (err error) {
	etcd, client, err := startEtcd(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(), etcd.Close()) }()
	copies, err := newCopier(ctx, client, func(i int) []string {
		return append(otherSandbox(sandbox, i), claim.Name, fmt.Sprintf("claim-%06d", i), string(claim.UID), string(uuid.NewUUID()))
	}, path.Join(claimKeys, claim.Namespace, claim.Name), path.Join(sandboxKeys, sandbox.Namespace, sandbox.Name))
	if err != nil {
		return err
	}
	return copies.write(ctx, n)
}
