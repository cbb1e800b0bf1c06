// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podaddress

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// heldPods are Pods whose reads wait in one namespace.
type heldPods struct {
	corev1client.PodInterface
	mu    sync.Mutex
	reads map[string]int
	letGo chan struct{}
}

// podsOf are those of a namespace.
type podsOf struct {
	*heldPods
	namespace string
}

func (h *heldPods) Pods(namespace string) corev1client.PodInterface { return podsOf{h, namespace} }

func (p podsOf) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	p.mu.Lock()
	p.reads[p.namespace]++
	p.mu.Unlock()
	if p.namespace == "many" {
		select {
		case <-p.letGo:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name, UID: "pod"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}, nil
}

// of returns how many reads of a namespace have begun.
func (h *heldPods) of(namespace string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reads[namespace]
}

// TestReadsOfANamespace: a namespace whose reads of Pods do not end leaves half of the slots to others. Its
// further ones wait, and fail as reads without an answer do.
func TestReadsOfANamespace(t *testing.T) {
	for name, answered := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const more = 10
				pods := &heldPods{reads: map[string]int{}, letGo: make(chan struct{})}
				verifier := New(pods)
				verify := func(namespace string) error {
					sb := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "box", UID: "sandbox"}}
					sb.Status.PodInfo = v1alpha1.PodInfo{PodIP: "10.0.0.1", PodUID: "pod"}
					return verifier.Verify(t.Context(), sb)
				}
				errs := make(chan error, maxReads/2+more)
				for range maxReads/2 + more {
					go func() { errs <- verify("many") }()
				}
				synctest.Wait()
				if err := verify("other"); err != nil || pods.of("other") != 1 {
					t.Errorf("another namespace: %d reads, %v", pods.of("other"), err)
				}
				if n := pods.of("many"); n != maxReads/2 {
					t.Errorf("%d Pods of a namespace are read at a time, want %d", n, maxReads/2)
				}
				if answered {
					close(pods.letGo)
				}
				for range cap(errs) {
					if err := <-errs; answered && err != nil || !answered && !errors.Is(err, ErrUnavailable) {
						t.Errorf("got %v", err)
					}
				}
				if n := verifier.reads.Held(); n != 0 {
					t.Errorf("%d slots are held", n)
				}
			})
		})
	}
}
