// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// The example keeps a pool of sandboxes and claims from it with the generated
// clientset: one sandbox first, then ten at once. It prints what a user wants to
// see, and ends with the line that says how long the one claim took.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	agents "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "Path of the kubeconfig that `sandlot up` printed")
	namespace := flag.String("namespace", "default", "Namespace to claim in")
	manifest := flag.String("set", "artifacts/example/sandboxset.yaml", "Path of the manifest of the SandboxSet to claim from")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *kubeconfig, *namespace, *manifest)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, kubeconfig, namespace, manifest string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	clients, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	client := clients.AgentsV1alpha1()

	set, err := ensurePool(ctx, client.SandboxSets(namespace), manifest)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "SandboxSet %s keeps %d sandboxes warm: %d are available.\n\n", set.Name, *set.Spec.Replicas, set.Status.AvailableReplicas)

	one, took, err := claim(ctx, client.SandboxClaims(namespace), "one-", set.Name, 1)
	if err != nil {
		return err
	}
	if err := showAnswer(out, one); err != nil {
		return err
	}
	ten, tookTen, err := claim(ctx, client.SandboxClaims(namespace), "ten-", set.Name, 10)
	if err != nil {
		return err
	}
	if err := show(out, one, ten); err != nil {
		return err
	}
	fmt.Fprintln(out, summary(ten, tookTen))
	fmt.Fprintln(out, summary(one, took))
	return nil
}

func summary(claim *v1alpha1.SandboxClaim, took time.Duration) string {
	return fmt.Sprintf("claimed %d/%d in %d ms, %s",
		claim.Status.ClaimedReplicas, *claim.Spec.Replicas, took.Milliseconds(), claim.Status.Phase)
}

// ensurePool creates the set of the manifest, unless it is there already, and waits
// until its pool is full.
func ensurePool(ctx context.Context, sets agents.SandboxSetInterface, manifest string) (*v1alpha1.SandboxSet, error) {
	text, err := os.ReadFile(manifest)
	if err != nil {
		return nil, err
	}
	set := &v1alpha1.SandboxSet{}
	if err := yaml.UnmarshalStrict(text, set); err != nil {
		return nil, fmt.Errorf("%s: %w", manifest, err)
	}
	if _, err := sets.Create(ctx, set, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating the set: %w", err)
	}
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, set.Name).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return sets.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return sets.Watch(ctx, o)
		},
	}
	event, err := watchtools.UntilWithSync(ctx, lw, &v1alpha1.SandboxSet{}, nil, func(event watch.Event) (bool, error) {
		current, ok := event.Object.(*v1alpha1.SandboxSet)
		return ok && current.Status.ObservedGeneration == current.Generation &&
			current.Status.AvailableReplicas >= *current.Spec.Replicas, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the pool: %w", err)
	}
	return event.Object.(*v1alpha1.SandboxSet), nil
}

// claim asks for n sandboxes. There is nothing to wait for: the answer to the
// create names them.
func claim(ctx context.Context, claims agents.SandboxClaimInterface, prefix, set string, n int32) (*v1alpha1.SandboxClaim, time.Duration, error) {
	began := time.Now()
	claim, err := claims.Create(ctx, &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefix},
		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: set, Replicas: new(n)},
	}, metav1.CreateOptions{})
	took := time.Since(began)
	switch {
	case err != nil:
		return nil, took, fmt.Errorf("claiming %d: %w", n, err)
	case claim.Status.ClaimedReplicas != n:
		return nil, took, fmt.Errorf("claiming %d: %s", n, claim.Status.Message)
	}
	return claim, took, nil
}

// showAnswer prints what the answer to the create of a claim says of its sandboxes.
func showAnswer(out io.Writer, claim *v1alpha1.SandboxClaim) error {
	status := claim.Status.DeepCopy()
	status.Conditions = nil
	text, err := yaml.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "The answer to the create of SandboxClaim %s, without its conditions:\n\n%s", claim.Name, text)
	return err
}

func show(out io.Writer, claims ...*v1alpha1.SandboxClaim) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "\nCLAIM\tPHASE\tSANDBOX\tADDRESS")
	for _, claim := range claims {
		for _, sandbox := range claim.Status.Sandboxes {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", claim.Name, claim.Status.Phase, sandbox.Name, sandbox.PodIPs[0])
		}
	}
	fmt.Fprintln(table)
	return table.Flush()
}
