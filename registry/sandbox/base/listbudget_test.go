// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// twoMaps is a storage with two ConfigMaps of 1 KB.
type twoMaps struct{ storage.Interface }

// GetList implements storage.Interface.
func (twoMaps) GetList(_ context.Context, _ string, _ storage.ListOptions, list runtime.Object) error {
	its := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{"large": strings.Repeat("x", 1000)}}
	list.(*corev1.ConfigMapList).Items = []corev1.ConfigMap{its, its}
	return nil
}

// TestListBudget: a list counts for its objects or for their metadata, and fails if the bytes are not left.
func TestListBudget(t *testing.T) {
	refused := errors.New("refused")
	for isWhole, want := range map[bool][2]int{true: {3000, 4000}, false: {1000, 1500}} { // from, to
		got := 0
		ctx := WithListBudget(t.Context(), ListBudget{isWhole, func(bytes int) error {
			got = bytes
			return refused
		}})
		err := withListBudget(twoMaps{}).GetList(ctx, "", storage.ListOptions{}, &corev1.ConfigMapList{})
		if got < want[0] || got > want[1] || !errors.Is(err, refused) {
			t.Errorf("whole objects %t: %d bytes, %v", isWhole, got, err)
		}
	}
	list := &corev1.ConfigMapList{}
	if err := withListBudget(twoMaps{}).GetList(t.Context(), "", storage.ListOptions{}, list); err != nil || len(list.Items) != 2 {
		t.Errorf("without a budget: %d items, %v", len(list.Items), err)
	}
}
