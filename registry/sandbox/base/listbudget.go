// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// ListBudget bounds what the list of a request takes in memory that is encoded as a whole, such as a Table.
type ListBudget struct {
	// IsWhole is set if the objects are encoded, and not only their metadata.
	IsWhole bool
	// Reserve reserves bytes until the request ends. The error is an API status error that says that none are left.
	Reserve func(bytes int) error
}

type listBudgetKey struct{}

// rowBytes is what a row of a Table takes beside its object.
const rowBytes = 512

// WithListBudget returns a context for a request whose list takes bytes of a budget.
func WithListBudget(ctx context.Context, budget ListBudget) context.Context {
	return context.WithValue(ctx, listBudgetKey{}, budget)
}

// budgetStorage reserves what lists take.
type budgetStorage struct{ storage.Interface }

func withListBudget(s storage.Interface) storage.Interface { return budgetStorage{s} }

// GetList implements storage.Interface.
func (s budgetStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	budget, ok := ctx.Value(listBudgetKey{}).(ListBudget)
	if err := s.Interface.GetList(ctx, key, opts, list); err != nil || !ok {
		return err
	}
	bytes := 0 // rows of a Table count too, whatever is in them
	if err := meta.EachListItem(list, func(item runtime.Object) error {
		bytes += rowBytes
		if whole, ok := item.(interface{ Size() int }); ok && budget.IsWhole {
			bytes += whole.Size()
		} else if its, ok := item.(metav1.ObjectMetaAccessor); ok {
			bytes += its.GetObjectMeta().(*metav1.ObjectMeta).Size()
		}
		return nil
	}); err != nil {
		return fmt.Errorf("measuring a list: %w", err)
	}
	return budget.Reserve(bytes)
}
