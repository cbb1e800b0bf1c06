// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client has helpers for programs that claim sandboxes, beside the generated
// clientset: one call that claims and waits, and that is safe to use when answers get
// lost; a call that gives back; and typed errors.
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
