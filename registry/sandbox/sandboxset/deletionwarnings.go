// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxset

import (
	"context"
	"fmt"
	"slices"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// NewDeletionWarnings returns warnings about the claimed sandboxes that stay when sets are deleted.
// It lists sandboxes from the cache of the store.
func NewDeletionWarnings(sandboxes *genericregistry.Store) *base.DeletionWarnings {
	return &base.DeletionWarnings{
		Concerns: func(runtime.Object) bool { return true },
		Warnings: func(ctx context.Context, deleted base.Deleted) []string {
			names := deleted.Names()
			selector, what := labels.Set{v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue}, fmt.Sprintf("%d %ss", len(names), base.SetKind(ctx))
			if len(names) == 1 {
				what = base.SetKind(ctx) + " " + names[0]
				selector[v1alpha1.LabelSandboxPool] = names[0]
			}
			stay := claimed(ctx, sandboxes, selector, names)
			if stay == 0 {
				return nil
			}
			return []string{fmt.Sprintf("%d claimed sandboxes of %s stay with those who claimed them: "+
				"kubectl get sandboxes --namespace %s --selector %s", stay, what, genericapirequest.NamespaceValue(ctx), selector)}
		},
	}
}

// claimed counts the sandboxes that claims have taken from sets, whose names are sorted.
// What cannot be read now is not warned of.
func claimed(ctx context.Context, sandboxes *genericregistry.Store, selector labels.Set, sets []string) int {
	obj, err := sandboxes.List(ctx, &metainternalversion.ListOptions{LabelSelector: selector.AsSelector(), ResourceVersion: "0"})
	list, ok := obj.(*v1alpha1.SandboxList)
	if err != nil || !ok {
		return 0
	}
	n := 0
	for i := range list.Items {
		sb := &list.Items[i]
		if _, ok := slices.BinarySearch(sets, sb.Labels[v1alpha1.LabelSandboxPool]); ok && sb.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}
