// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/scheme"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// Claim is a claim on a set; change may make it another.
func Claim(set *v1alpha1.SandboxSet, name string, replicas int32, change func(*v1alpha1.SandboxClaim)) *v1alpha1.SandboxClaim {
	claim := &v1alpha1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: name},
		Spec:       v1alpha1.SandboxClaimSpec{TemplateName: set.Name, Replicas: new(replicas)},
	}
	if change != nil {
		change(claim)
	}
	return claim
}

// CreateOnce creates a claim in a namespace, without the retries that clients make by
// themselves after some errors.
func (s *Server) CreateOnce(ctx context.Context, namespace string, claim *v1alpha1.SandboxClaim, dryRun ...string) (*v1alpha1.SandboxClaim, error) {
	created := &v1alpha1.SandboxClaim{}
	err := s.Client.AgentsV1alpha1().RESTClient().Post().Namespace(namespace).Resource("sandboxclaims").
		VersionedParams(&metav1.CreateOptions{DryRun: dryRun}, scheme.ParameterCodec).
		MaxRetries(0).Body(claim).Do(ctx).Into(created)
	return created, err
}

// AwaitClaim waits until the claim is there and check has nothing to say against it, and
// returns it.
func (s *Server) AwaitClaim(t testing.TB, namespace, name string, check func(*v1alpha1.SandboxClaim) string) *v1alpha1.SandboxClaim {
	t.Helper()
	var claim *v1alpha1.SandboxClaim
	expect.Eventually(t.Context(), t, func(ctx context.Context) (err error) {
		claim, err = s.Client.AgentsV1alpha1().SandboxClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			if !apierrors.IsNotFound(err) && ctx.Err() == nil {
				t.Fatal(err)
			}
			return err
		}
		if problem := check(claim); problem != "" {
			return fmt.Errorf("claim %s: %s; it is %+v", name, problem, claim.Status)
		}
		return nil
	})
	return claim
}

// Completed is a check for AwaitClaim.
func Completed(claim *v1alpha1.SandboxClaim) string {
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		return "not Completed"
	}
	return ""
}
