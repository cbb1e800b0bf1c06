// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client is what programs that claim sandboxes take beside the generated
// clientset: one call that claims and waits, and that is safe to use when answers get
// lost; giving back; and errors that can be told apart.
//
//	agents, err := client.NewForConfig(config)
//	...
//	claim, err := client.ClaimAndWait(ctx, agents.AgentsV1alpha1(), &v1alpha1.SandboxClaim{
//		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "run-"},
//		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: "python"},
//	}, client.Options{})
//
// The package fake beside it is for unit tests without a server.
package client
