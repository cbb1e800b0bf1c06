// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/gateway/apikeys"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/keystest"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// TestE2BKeys keeps API keys in Secrets: what one replica of the gateway does another knows.
func TestE2BKeys(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	// A replica with the rights of the install, and one that cannot read by name: what it
	// believes, its watch has told.
	replica := e2bReplica(t, ns, clock.RealClock{}, "get", "list", "watch", "create", "delete")
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	watcher := e2bReplica(t, ns, clk, "list", "watch")
	a, b := apikeys.New(replica), apikeys.New(watcher)
	believes := func(ctx context.Context, text string, want error) error {
		if caller, err := b.Authenticate(ctx, text); !errors.Is(err, want) {
			return fmt.Errorf("the other replica says %+v, %w, want %w", caller, err, want)
		}
		return nil
	}

	keystest.Contract(t, replica, "contract-a", "contract-b")
	keystest.Contract(t, apikeys.NewSecrets(admin(t).kube.CoreV1(), ns, clock.RealClock{}), "contract-c", "contract-d") // as the plugin, without a watch

	root, rootText, err := a.Issue(t.Context(), apikeys.Request{Team: "team", Name: "root"})
	if err != nil {
		t.Fatal(err)
	}
	// Any replica knows it at once: the first from its memory, another reads it.
	for _, backend := range []apikeys.Backend{replica, e2bReplica(t, ns, clock.RealClock{}, "get", "list", "watch")} {
		if caller, err := apikeys.New(backend).Authenticate(t.Context(), rootText); err != nil || caller.KeyID != root.ID {
			t.Errorf("a new key is %+v, %v", caller, err)
		}
	}
	child, childText, err := a.Issue(t.Context(), apikeys.Request{Team: "team", Name: "child", By: &apikeys.Caller{Team: "team", KeyID: root.ID}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{rootText, childText} {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error { return believes(ctx, text, nil) })
	}

	// A quiet watch gives a sign of life; until it does, keys are not believed for ever. The
	// clock stands still meanwhile.
	clk.Step(31 * time.Second)
	if err := believes(t.Context(), rootText, nil); err == nil {
		t.Log("the watch gave a sign of life already")
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { return believes(ctx, rootText, nil) })

	secret, err := admin(t).kube.CoreV1().Secrets(ns).Get(t.Context(), "e2b-key-"+child.ID, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if all := fmt.Sprintf("%s", secret.Data); secret.Type != apikeys.SecretType || secret.Immutable == nil || !*secret.Immutable || strings.Contains(all, childText[20:36]) {
		t.Errorf("its Secret is of type %s, immutable %v", secret.Type, secret.Immutable)
	}

	// The watch reports the end of both. What the other replica then reads by name it may
	// not: it does not believe the keys, which is what counts.
	gone, err := a.Revoke(t.Context(), "team", root.ID)
	if err != nil || len(gone) != 2 {
		t.Fatalf("revoked %+v, %v", gone, err)
	}
	for _, text := range []string{rootText, childText} {
		if _, err := a.Authenticate(t.Context(), text); !errors.Is(err, apikeys.ErrUnknownKey) {
			t.Errorf("a revoked key, where it was revoked: %v", err)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			if caller, err := b.Authenticate(ctx, text); err == nil {
				return fmt.Errorf("a revoked key is still %+v", caller)
			}
			return nil
		})
	}
}

// e2bReplica runs what a replica of the gateway knows of keys, with some rights on Secrets,
// and waits until it has listed them.
func e2bReplica(t *testing.T, ns string, clk clock.PassiveClock, verbs ...string) *apikeys.Secrets {
	t.Helper()
	user := fmt.Sprintf("%s-%s", uniqueUser(t, "gateway"), strings.Join(verbs, "-"))
	uniqueRole(t, ns, user, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: verbs})
	c := as(t, user)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a role takes a moment to be known
		_, err := c.kube.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
		return err
	})
	s := apikeys.NewSecrets(c.kube.CoreV1(), ns, clk)
	ctx, cancel := context.WithCancel(context.Background()) // that of the test ends before its cleanups
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	expect.Eventually(t.Context(), t, func(context.Context) error {
		if !s.Synced() {
			return errors.New("the keys have not been listed")
		}
		return nil
	})
	return s
}

// TestE2BKeyPlugin makes, lists and revokes keys with "kubectl sandlot e2b-key".
func TestE2BKeyPlugin(t *testing.T) {
	t.Parallel()
	plugins := t.TempDir()
	if err := program.Build(plugins, "kubectl-sandlot"); err != nil {
		t.Fatal(err)
	}
	ns, c := namespace(t), admin(t)
	run := func(args ...string) (stdout, stderr string, err error) {
		args = slices.Concat([]string{"e2b-key", "-n", ns, "--keys-namespace", ns, "--kubeconfig", plane.Kubeconfig()}, args)
		return runProgram(t, filepath.Join(plugins, "kubectl-sandlot"), args...)
	}
	if stdout, stderr, err := run("create", "--name", "ci"); err == nil || stdout != "" || !strings.Contains(stderr, "e2b-team") {
		t.Errorf("without the ServiceAccount: %q, %q, %v", stdout, stderr, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.E2BServiceAccount}}
	if _, err := c.kube.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, err := run("list"); err != nil || stdout != "" || !strings.Contains(stderr, "has no API keys") {
		t.Errorf("no keys are listed as %q, %q, %v", stdout, stderr, err)
	}
	if stdout, stderr, err := run("create", "--name", "ci", "--keys-namespace", ns+"-x"); err == nil || stdout != "" || !strings.Contains(stderr, "install of sandlot-gateway") {
		t.Errorf("without a namespace for keys: %q, %q, %v", stdout, stderr, err)
	}
	stdout, stderr, err := run("create", "--name", "ci")
	text, whole := strings.CutSuffix(stdout, "\n")
	if err != nil || !whole || strings.Contains(stderr, text[20:]) {
		t.Fatalf("created %d bytes, %v: %s", len(stdout), err, stderr)
	}
	k := apikeys.New(apikeys.NewSecrets(c.kube.CoreV1(), ns, clock.RealClock{}))
	caller, err := k.Authenticate(t.Context(), text)
	if err != nil || caller.Team != ns {
		t.Fatalf("the key is %+v, %v", caller, err)
	}
	child, _, err := k.Issue(t.Context(), apikeys.Request{Team: ns, Name: "child", By: &caller})
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err = run("list")
	if err != nil || !strings.HasPrefix(stdout, "ID ") || !strings.Contains(stdout, caller.KeyID) || !strings.Contains(stdout, child.ID) || strings.Contains(stdout, text[20:]) {
		t.Errorf("listed as %s%s%v", stdout, stderr, err)
	}
	if _, stderr, err := run("revoke", "0123456789abcdef"); err == nil || !strings.Contains(stderr, "has no API key") {
		t.Errorf("revoking no key: %q, %v", stderr, err)
	}
	stdout, stderr, err = run("revoke", caller.KeyID)
	if err != nil || !strings.Contains(stdout, caller.KeyID) || !strings.Contains(stdout, child.ID) || !strings.Contains(stderr, "2 API keys") {
		t.Errorf("revoked with %s%s%v", stdout, stderr, err)
	}
	if left, err := k.List(t.Context(), ns); err != nil || len(left) > 0 {
		t.Errorf("left are %+v, %v", left, err)
	}
}
