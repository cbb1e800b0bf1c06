// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxclaim

import (
	"context"
	"fmt"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// NewDeletionWarnings returns warnings about the sandboxes that stay when claims are deleted. It
// lists sandboxes from the cache of the store.
func NewDeletionWarnings(sandboxes *genericregistry.Store) *base.DeletionWarnings {
	return &base.DeletionWarnings{
		Concerns: func(obj runtime.Object) bool {
			claim, ok := obj.(*v1alpha1.SandboxClaim)
			return ok && claim.Spec.ReclaimPolicy != v1alpha1.ReclaimDelete
		},
		Warnings: func(ctx context.Context, deleted base.Deleted) []string {
			selector, only := labels.Set{v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue}, "claims"
			if len(deleted) == 1 { // by an index
				only = deleted.Names()[0]
				selector = labels.Set{v1alpha1.LabelClaimName: only}
			}
			stay, of := left(ctx, sandboxes, selector, deleted)
			switch namespace := genericapirequest.NamespaceValue(ctx); {
			case stay == 0:
				return nil
			case len(deleted) == 1:
				stays := fmt.Sprintf("%d sandboxes of claim %s stay: release them", stay, only)
				if stay == 1 {
					stays = fmt.Sprintf("1 sandbox of claim %s stays: release it", only)
				}
				return []string{stays + " before the claim is deleted, or delete what is left: " +
					fmt.Sprintf("kubectl delete sandboxes --namespace %s --selector %s", namespace, selector)}
			default:
				return []string{fmt.Sprintf("%d sandboxes of %d claims stay: release them before the claims are deleted, or delete them: "+
					"kubectl get sandboxes --namespace %s --selector %s", stay, of, namespace, selector)}
			}
		},
	}
}

// left counts the sandboxes that stay when claims are deleted, and the claims that they
// are of. What cannot be read now is not warned of.
func left(ctx context.Context, sandboxes *genericregistry.Store, selector labels.Set, deleted base.Deleted) (stay, of int) {
	obj, err := sandboxes.List(ctx, &metainternalversion.ListOptions{LabelSelector: selector.AsSelector(), ResourceVersion: "0"})
	list, ok := obj.(*v1alpha1.SandboxList)
	if err != nil || !ok {
		return 0, 0
	}
	claims := map[types.UID]bool{}
	for i := range list.Items {
		sb := &list.Items[i]
		owner := types.UID(sb.Annotations[v1alpha1.AnnotationOwner])
		name, ok := deleted[owner]
		if !ok || sb.Labels[v1alpha1.LabelClaimName] != name || sb.DeletionTimestamp != nil ||
			sb.Annotations[v1alpha1.AnnotationStarting] != "" { // which goes with the claim
			continue
		}
		claims[owner] = true
		stay++
	}
	return stay, len(claims)
}
