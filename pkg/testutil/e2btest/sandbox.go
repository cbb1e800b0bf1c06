// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2btest is for tests only: it makes sandboxes as the gateway of the E2B API does,
// and changes them as controllers do.
package e2btest

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// Code returns a new name of a claim.
func Code() string {
	random := make([]byte, 10)
	_, _ = rand.Read(random) // never fails
	return "e" + strings.ToLower(base32.StdEncoding.EncodeToString(random))[:13]
}

// Gateway returns a client that acts for the team of a namespace. A server without a
// cluster knows no roles, so it may do what the admin may do.
func Gateway(t testing.TB, server *testutil.Server, namespace string) versioned.Interface {
	t.Helper()
	config := rest.CopyConfig(server.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: v1alpha1.E2BUser(namespace), Groups: []string{user.SystemPrivilegedGroup}}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	return client
}

// Claim claims a sandbox of a set, which has to be in stock, as the gateway does; change may
// make it another claim.
func Claim(t testing.TB, server *testutil.Server, set *v1alpha1.SandboxSet, change func(*v1alpha1.SandboxClaim)) *v1alpha1.Sandbox {
	t.Helper()
	claim := testutil.Claim(set, Code(), 1, change)
	client := Gateway(t, server, set.Namespace)
	if _, err := client.AgentsV1alpha1().SandboxClaims(set.Namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatalf("claiming: %v", err)
	}
	claim = server.AwaitClaim(t, set.Namespace, claim.Name, testutil.Completed)
	if len(claim.Status.Sandboxes) != 1 {
		t.Fatalf("the claim has ended without a sandbox: %+v", claim.Status)
	}
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes(set.Namespace)
	sandbox, err := sandboxes.Get(t.Context(), claim.Status.Sandboxes[0].Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := v1alpha1.IsE2B(sandbox); !ok {
		t.Fatalf("the server does not tell that sandbox %s is of the E2B API: labels %v", sandbox.Name, sandbox.Labels)
	}
	return sandbox
}

// Annotate returns a change for Claim that asks for annotations, in pairs of key and value.
func Annotate(pairs ...string) func(*v1alpha1.SandboxClaim) {
	return func(claim *v1alpha1.SandboxClaim) {
		claim.Spec.Annotations = map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			claim.Spec.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

// Pause pauses a sandbox at once, as its controller does.
func Pause(t testing.TB, server *testutil.Server, sandbox *v1alpha1.Sandbox) {
	t.Helper()
	Change(t, server, sandbox, func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = true })
	ChangeStatus(t, server, sandbox, func(sb *v1alpha1.Sandbox) {
		sb.Status.Phase, sb.Status.PodInfo, sb.Status.SandboxIP = v1alpha1.SandboxPaused, v1alpha1.PodInfo{}, ""
	})
}

// Resume resumes a paused sandbox at once, as its controller does, with an address.
func Resume(t testing.TB, server *testutil.Server, sandbox *v1alpha1.Sandbox, address string) {
	t.Helper()
	Change(t, server, sandbox, func(sb *v1alpha1.Sandbox) { sb.Spec.Paused = false })
	ChangeStatus(t, server, sandbox, func(sb *v1alpha1.Sandbox) {
		sb.Status = testutil.ReadyStatus(0, time.Now())
		sb.Status.SandboxIP, sb.Status.PodInfo.PodIP, sb.Status.PodInfo.PodUID = address, address, sb.UID
	})
}

// Change changes a sandbox, except for its status.
func Change(t testing.TB, server *testutil.Server, sandbox *v1alpha1.Sandbox, change func(*v1alpha1.Sandbox)) {
	t.Helper()
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes(sandbox.Namespace)
	write(t, server, sandbox, change, func(ctx context.Context, sb *v1alpha1.Sandbox) error {
		_, err := sandboxes.Update(ctx, sb, metav1.UpdateOptions{})
		return err
	})
}

// ChangeStatus changes the status of a sandbox.
func ChangeStatus(t testing.TB, server *testutil.Server, sandbox *v1alpha1.Sandbox, change func(*v1alpha1.Sandbox)) {
	t.Helper()
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes(sandbox.Namespace)
	write(t, server, sandbox, change, func(ctx context.Context, sb *v1alpha1.Sandbox) error {
		_, err := sandboxes.UpdateStatus(ctx, sb, metav1.UpdateOptions{})
		return err
	})
}

func write(t testing.TB, server *testutil.Server, sandbox *v1alpha1.Sandbox, change func(*v1alpha1.Sandbox), update func(context.Context, *v1alpha1.Sandbox) error) {
	t.Helper()
	sandboxes := server.Client.AgentsV1alpha1().Sandboxes(sandbox.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := sandboxes.Get(t.Context(), sandbox.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(current)
		return update(t.Context(), current)
	})
	if err != nil {
		t.Fatalf("changing sandbox %s: %v", sandbox.Name, err)
	}
}
