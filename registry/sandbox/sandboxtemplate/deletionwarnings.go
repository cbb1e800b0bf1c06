// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package sandboxtemplate

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/registry/sandbox/base"
)

// newDeletionWarnings returns warnings about the sets that use templates which are deleted. Revisions
// of sets are no templates of users.
func newDeletionWarnings(pods PodValidator) *base.DeletionWarnings {
	if pods == nil {
		return nil
	}
	return &base.DeletionWarnings{
		Concerns: func(obj runtime.Object) bool {
			template, ok := obj.(*v1alpha1.SandboxTemplate)
			return ok && !isOwnedBySet(template)
		},
		Warnings: func(ctx context.Context, deleted base.Deleted) []string {
			return pods.WarnOfDeletion(ctx, genericapirequest.NamespaceValue(ctx), deleted.Names())
		},
	}
}
