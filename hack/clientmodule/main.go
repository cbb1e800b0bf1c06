// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Command clientmodule is a program of another module, as a platform team has one: it
// uses each part of pkg/client once. hack/verify-clients.sh builds it.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	apply "github.com/sandlot-io/sandlot/pkg/client/applyconfiguration/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/fake"
	"github.com/sandlot-io/sandlot/pkg/client/informers/externalversions"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, fake.NewClientset()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run creates a claim, applies another, and waits until an informer knows both.
func run(ctx context.Context, client versioned.Interface) error {
	claims := client.AgentsV1alpha1().SandboxClaims("default")
	one := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	one.Spec.TemplateName = "pool"
	if _, err := claims.Create(ctx, one, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a claim: %w", err)
	}
	two := apply.SandboxClaim("two", "default").WithSpec(apply.SandboxClaimSpec().WithTemplateName("pool"))
	if _, err := claims.Apply(ctx, two, metav1.ApplyOptions{FieldManager: "clientmodule", Force: true}); err != nil {
		return fmt.Errorf("applying a claim: %w", err)
	}
	factory := externalversions.NewSharedInformerFactory(client, 0)
	lister := factory.Agents().V1alpha1().SandboxClaims().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	known, err := lister.SandboxClaims("default").List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing what the informer knows: %w", err)
	}
	if len(known) != 2 {
		return fmt.Errorf("the informer knows %d claims, want 2", len(known))
	}
	return nil
}
