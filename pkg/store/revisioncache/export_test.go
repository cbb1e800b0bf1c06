// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package revisioncache

import (
	"context"

	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
)

// CompareWithEtcd does what the consistency checker of a storage does now and then.
func CompareWithEtcd(ctx context.Context, s storage.Interface) (*consistency.Digest, error) {
	return s.(*consistentReader).checker.CalculateDigests(ctx)
}
