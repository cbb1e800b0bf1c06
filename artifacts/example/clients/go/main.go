// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// The example claims sandboxes with pkg/client, prints their names and addresses, and
// gives them back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "Path of the kubeconfig")
	namespace := flag.String("namespace", "default", "Namespace to claim in")
	pool := flag.String("pool", "python", "SandboxSet to claim from")
	replicas := flag.Int("replicas", 1, "Number of sandboxes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *kubeconfig, *namespace, *pool, int32(*replicas))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace, pool string, replicas int32) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	clients, err := client.NewForConfig(config)
	if err != nil {
		return err
	}
	agents := clients.AgentsV1alpha1()

	within, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	claim, err := client.ClaimAndWait(within, agents, &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "run-"},
		Spec: v1alpha1.SandboxClaimSpec{
			TemplateName: pool,
			Replicas:     &replicas,
			OnShortage:   v1alpha1.ShortageFail,
		},
	}, client.Options{OnGiveUp: client.GiveUpGiveBack})
	var short *client.IncompleteError
	switch {
	case client.IsShortage(err):
		return fmt.Errorf("no sandboxes now, try again later: %w", err)
	case errors.As(err, &short):
		return errors.Join(err, client.GiveBack(ctx, agents, short.Claim))
	case err != nil:
		return err
	}
	for _, sandbox := range claim.Status.Sandboxes {
		fmt.Println(sandbox.Name, sandbox.PodIPs)
	}
	return client.GiveBack(ctx, agents, claim)
}
