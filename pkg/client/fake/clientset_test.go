// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"errors"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
)

const namespace = "default"

func newSet(name, template string) *v1alpha1.SandboxSet {
	size := int32(3)
	set := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	set.Spec.Replicas = &size
	if template != "" {
		set.Spec.TemplateRef = &v1alpha1.SandboxTemplateRef{Name: template}
	}
	return set
}

func newClaim(name, set string, replicas int32) *v1alpha1.SandboxClaim {
	warm := false
	return &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: set, Replicas: &replicas, CreateOnNoStock: &warm},
	}
}

func fill(t *testing.T, c *Clientset, set string, n int) {
	t.Helper()
	if _, err := c.Fill(namespace, set, n); err != nil {
		t.Fatal(err)
	}
}

// A program that waits in ClaimAndWait continues when the test fills the pool.
func TestWaitsForFill(t *testing.T) {
	c := NewClientset(newSet("pool", ""))
	agents := c.AgentsV1alpha1()
	fill(t, c, "pool", 1)
	watched := make(chan struct{})
	var once sync.Once
	c.PrependReactor("get", "sandboxclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		once.Do(func() { close(watched) })
		return false, nil, nil
	})
	go func() {
		<-watched
		if _, err := c.Fill(namespace, "pool", 2); err != nil {
			t.Error(err)
		}
	}()
	claim, err := client.ClaimAndWait(t.Context(), agents, newClaim("", "pool", 3), client.Options{})
	if err != nil || len(claim.Status.Sandboxes) != 3 {
		t.Fatalf("got %+v, %v", claim, err)
	}
	set, err := agents.SandboxSets(namespace).Get(t.Context(), "pool", metav1.GetOptions{})
	if err != nil || set.Status.AvailableReplicas != 0 || set.Status.Replicas != 0 {
		t.Errorf("the set counts %+v, %v", set.Status, err)
	}
	if err := client.GiveBack(t.Context(), agents, claim); err != nil {
		t.Error(err)
	}
	left, err := agents.Sandboxes(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("%d sandboxes are left, %v", len(left.Items), err)
	}
}

func TestTimeOut(t *testing.T) {
	c := NewClientset(newSet("pool", ""), newClaim("foreign", "", 1))
	agents := c.AgentsV1alpha1()
	if _, err := agents.SandboxClaims(namespace).Create(t.Context(), newClaim("late", "pool", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fill(t, c, "pool", 1)
	if err := c.TimeOut(namespace, "late"); err != nil {
		t.Fatal(err)
	}
	late, err := agents.SandboxClaims(namespace).Get(t.Context(), "late", metav1.GetOptions{})
	if err != nil || late.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted || late.Status.ClaimedReplicas != 1 ||
		!strings.HasSuffix(late.Status.Message, "claimed 1/2 sandboxes") {
		t.Errorf("ends with %+v, %v", late.Status, err)
	}
	for _, name := range []string{"late", "nowhere"} {
		if err := c.TimeOut(namespace, name); err == nil {
			t.Errorf("claim %s cannot time out, and no error says so", name)
		}
	}
}

func TestPoolsOfATemplate(t *testing.T) {
	patched := newSet("a", "python")
	patched.Spec.Patch = &runtime.RawExtension{Raw: []byte("{}")}
	c := NewClientset(patched, newSet("b", "python"), newSet("other", "node"))
	agents := c.AgentsV1alpha1()
	for _, set := range []string{"a", "b", "other"} {
		fill(t, c, set, 2)
	}
	for _, want := range []string{"b-", "b-", "a-", "a-", "fresh b-"} {
		claim := newClaim("", "", 1)
		claim.Spec.SandboxTemplateRef = &v1alpha1.SandboxClaimTemplateRef{Name: "python"}
		if fresh := true; strings.HasPrefix(want, "fresh ") {
			claim.Spec.CreateOnNoStock = &fresh
		}
		got, err := client.ClaimAndWait(t.Context(), agents, claim, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if name := got.Status.Sandboxes[0].Name; !strings.HasPrefix(name, strings.TrimPrefix(want, "fresh ")) {
			t.Errorf("got sandbox %s, want %s", name, want)
		}
	}
}

// Two callers never get the same sandbox.
func TestConcurrentClaims(t *testing.T) {
	c := NewClientset(newSet("pool", ""))
	fill(t, c, "pool", 20)
	var calls sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 20 {
		calls.Go(func() {
			claim, err := client.ClaimAndWait(t.Context(), c.AgentsV1alpha1(), newClaim("", "pool", 1), client.Options{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[claim.Status.Sandboxes[0].Name] {
				t.Errorf("got %+v, %v", claim, err)
				return
			}
			seen[claim.Status.Sandboxes[0].Name] = true
		})
	}
	calls.Wait()
}

// Errors are made as with every fake.
func TestErrorsByReactor(t *testing.T) {
	c := NewClientset(newSet("pool", ""))
	fill(t, c, "pool", 1)
	lost := 0
	c.PrependReactor("create", "sandboxclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		lost++
		return lost == 1, nil, errors.New("connection lost")
	})
	if _, err := client.ClaimAndWait(t.Context(), c.AgentsV1alpha1(), newClaim("", "pool", 1), client.Options{}); err != nil || lost != 2 {
		t.Errorf("after %d tries: %v", lost, err)
	}
}
