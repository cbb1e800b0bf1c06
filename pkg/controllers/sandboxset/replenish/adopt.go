// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// adoptable says whether a SandboxTemplate that nobody owns is what would be made:
// a set that was deleted without what it owned leaves such ones to the next of its
// name.
func adoptable(existing, wanted *v1alpha1.SandboxTemplate) bool {
	if existing.DeletionTimestamp != nil || len(existing.OwnerReferences) > 0 {
		return false
	}
	for _, label := range []string{v1alpha1.LabelSandboxPool, v1alpha1.LabelTemplateHash} {
		if existing.Labels[label] != wanted.Labels[label] {
			return false
		}
	}
	a, errA := plain(&existing.Spec)
	b, errB := plain(&wanted.Spec)
	return errA == nil && errB == nil && reflect.DeepEqual(a, b)
}

// plain is a spec as JSON values: the server need not store the raw parts byte by
// byte as they were sent.
func plain(spec *v1alpha1.SandboxTemplateSpec) (any, error) {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var value any
	err = decoder.Decode(&value)
	return value, err
}

// adopt makes a template the set's, unless it has changed since it was looked at.
func (c *Controller) adopt(ctx context.Context, existing, wanted *v1alpha1.SandboxTemplate) error {
	adopted := existing.DeepCopy()
	adopted.OwnerReferences = append([]metav1.OwnerReference(nil), wanted.OwnerReferences...)
	patch := client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, adopted, patch); err != nil {
		return fmt.Errorf("adopting SandboxTemplate %s/%s: %w", existing.Namespace, existing.Name, err)
	}
	return nil
}
