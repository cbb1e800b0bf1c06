// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const eve = "eve"

// TestLargeAnnotations asks for 400 sandboxes that each have the largest annotations that
// an object may have: 200 MiB by a request of 256 KiB.
func TestLargeAnnotations(t *testing.T) {
	s := startServer(t)
	s.makeSet(t, eve, builders.Set("pool", 0))
	innocent := s.innocent(t)
	before := s.usage(t)
	claim := builders.Claim("large", 400)
	claim.Spec.WarmPool, claim.Spec.CreateOnNoStock = "none", new(true)
	claim.Spec.Annotations = map[string]string{"example.com/note": strings.Repeat("x", 255<<10)}
	_, err := s.SandboxClaims(eve).Create(t.Context(), claim, metav1.CreateOptions{})
	refused(t, err, "spec")
	innocent.undisturbed(t)
	s.usage(t).since(t, before).atMost(t, usage{cpu: 5 * time.Second, store: 8 * mebibyte, heap: 32 * mebibyte})
	if n := s.count(t, eve); n > 0 {
		t.Errorf("there are %d sandboxes", n)
	}
}

// TestManyAnnotations creates objects that take many times as much memory as space in etcd. They are
// rejected before the memory of the server is full, and can be deleted.
func TestManyAnnotations(t *testing.T) {
	const limit, keys = 256 * mebibyte, 9900 // more than 10,000 are refused
	t.Setenv("GOMEMLIMIT", strconv.Itoa(limit))
	s := startServer(t)
	templates := s.as(t, "eve").RESTClient()
	annotations := map[string]string{}
	for i := range keys {
		annotations[strconv.FormatInt(int64(i), 36)] = ""
	}
	var rejected error
	for i := 0; i < 400 && rejected == nil; i++ {
		template := builders.Template(fmt.Sprintf("many-%d", i))
		template.Annotations = annotations
		rejected = templates.Post().Namespace(eve).Resource("sandboxtemplates").Body(template).MaxRetries(0).Do(t.Context()).Error()
	}
	if !apierrors.IsTooManyRequests(rejected) || !strings.Contains(rejected.Error(), "of its memory") {
		t.Errorf("the last create: %v", rejected)
	}
	if used := s.usage(t); used.heap > limit {
		t.Errorf("%d MiB of memory are used, of %d", used.heap/mebibyte, limit/mebibyte)
	}
	if err := s.as(t, "eve").SandboxTemplates(eve).Delete(t.Context(), "many-0", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestLongTimeouts asks for claims that outlive who runs the cluster.
func TestLongTimeouts(t *testing.T) {
	s := startServer(t)
	const years = 10 * 365 * 24 * time.Hour
	for field, set := range map[string]func(*v1alpha1.SandboxClaim){
		"spec.claimTimeout":     func(c *v1alpha1.SandboxClaim) { c.Spec.ClaimTimeout = &metav1.Duration{Duration: years} },
		"spec.waitReadyTimeout": func(c *v1alpha1.SandboxClaim) { c.Spec.WaitReadyTimeout = &metav1.Duration{Duration: years} },
	} {
		claim := builders.Claim("", 1)
		claim.GenerateName = "long-"
		claim.Spec.OnShortage = v1alpha1.ShortageWait
		set(claim)
		_, err := s.SandboxClaims(eve).Create(t.Context(), claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		refused(t, err, field)
	}
}

// TestTenThousandFresh has 10,000 sandboxes made by one claim on a set that keeps none.
func TestTenThousandFresh(t *testing.T) {
	const most = 1000 // of --max-fresh-sandboxes
	s := startServer(t)
	s.makeSet(t, eve, builders.Set("pool", 0))
	before := s.usage(t)
	claim := builders.Claim("many", 10_000)
	claim.Spec.CreateOnNoStock, claim.Spec.ClaimTimeout = new(true), &metav1.Duration{Duration: 10 * time.Second}
	_, refusal := s.SandboxClaims(eve).Create(t.Context(), claim, metav1.CreateOptions{})
	if refusal != nil && !apierrors.IsInvalid(refusal) {
		t.Fatal(refusal)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		n, phase := s.count(t, eve), v1alpha1.SandboxClaimPhaseCompleted
		if n > most {
			t.Fatalf("there are %d sandboxes", n)
		}
		if refusal == nil {
			claim, err := s.SandboxClaims(eve).Get(ctx, claim.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			phase = claim.Status.Phase
		}
		if phase != v1alpha1.SandboxClaimPhaseCompleted {
			return fmt.Errorf("the claim is %s with %d sandboxes", phase, n)
		}
		return nil
	})
	t.Logf("answered with %v; there are %d sandboxes", refusal, s.count(t, eve))
	s.usage(t).since(t, before).atMost(t, usage{cpu: 30 * time.Second, store: 32 * mebibyte, heap: 64 * mebibyte})
}
