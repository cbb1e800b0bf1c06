// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

const (
	countClaims    = corev1.ResourceName("count/sandboxclaims.agents.kruise.io")
	countSandboxes = corev1.ResourceName("count/sandboxes.agents.kruise.io")
)

// TestQuotaOfClaims limits the number of claims: one too many is refused and
// binds nothing, and there is room again when one is deleted.
func TestQuotaOfClaims(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 5)
	c.claim(t, ns, builders.Claim("before", 1)) // counted, though older than the quota
	expect.FullPool(t, c, ns, "pool", 5)
	c.limit(t, ns, countClaims, 3, 1)

	if _, err := c.SandboxClaims(ns).Create(t.Context(), builders.Claim("dry", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a dry run within the quota: %v", err)
	}
	// Of many at once, as many succeed as there is room for.
	var group sync.WaitGroup
	var mu sync.Mutex
	var created, refused []string
	for i := range 8 {
		group.Go(func() {
			claim := builders.Claim(fmt.Sprintf("claim-%d", i), 1)
			_, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				created = append(created, claim.Name)
			case exceeded(err, countClaims):
				refused = append(refused, claim.Name)
			default:
				t.Errorf("neither created nor over the quota: %v", err)
			}
		})
	}
	group.Wait()
	if len(created) != 2 || len(refused) != 6 {
		t.Fatalf("created %v, refused %v, with room for two", created, refused)
	}
	c.checkBound(t, ns, 3)
	_, err := c.SandboxClaims(ns).Create(t.Context(), builders.Claim("dry", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !exceeded(err, countClaims) {
		t.Errorf("a dry run over the quota: %v", err)
	}
	if out, err := tryKubectl(t, "", ns, builders.ClaimYAML, "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("apply over the quota: %v: %s", err, out)
	}
	c.checkBound(t, ns, 3)

	if err := c.SandboxClaims(ns).Delete(t.Context(), created[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := c.SandboxClaims(ns).Create(ctx, builders.Claim("after", 1), metav1.CreateOptions{})
		return err
	})
}

// TestQuotaOfSandboxes limits the number of sandboxes: a set fills up to it, and a
// claim does not come by more of them than the limit either.
func TestQuotaOfSandboxes(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	c.limit(t, ns, countSandboxes, 3, 2)

	cold := builders.Claim("cold", 4)
	cold.Spec.CreateOnNoStock = new(true)
	_, err := c.SandboxClaims(ns).Create(t.Context(), cold, metav1.CreateOptions{})
	if !exceeded(err, countSandboxes) {
		t.Errorf("two sandboxes are made where there is room for one: %v", err)
	}
	c.checkBound(t, ns, 0)

	// What is warm was paid for when it was made.
	c.claim(t, ns, builders.Claim("warm", 2))
	c.checkBound(t, ns, 2)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list, err := c.Sandboxes(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) > 3 {
			t.Fatalf("%d sandboxes, with a quota of 3", len(list.Items))
		}
		if len(list.Items) < 3 {
			return fmt.Errorf("the set has room for one, there are %d sandboxes", len(list.Items))
		}
		return nil
	})
}

// TestShortageIsNotCharged lets a client try again and again for what the pool does
// not have. That uses up no quota.
func TestShortageIsNotCharged(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 1)
	c.limit(t, ns, countClaims, 2, 0)
	claim := builders.Claim("impatient", 2)
	claim.Spec.OnShortage = v1alpha1.ShortageFail
	// client-go does so by itself, ten times, a second apart as the answer says.
	if _, err := c.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v, want a shortage", err)
	}
	c.claim(t, ns, builders.Claim("patient", 1))
	expect.FullPool(t, c, ns, "pool", 1)
	c.claim(t, ns, builders.Claim("second", 1))
}

// TestQuotaOfInstall makes the quota of docs/install.md: claims, sandboxes, sets and pods are
// counted by the names that it says.
func TestQuotaOfInstall(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	content, err := os.ReadFile(filepath.Join(repository(t), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(string(content), "```sh quota\nkubectl -n team-a ")
	command, _, found := strings.Cut(command, "\n```\n")
	if !found {
		t.Fatal("docs/install.md has no quota")
	}
	kubectl(t, ns, "", strings.Fields(strings.ReplaceAll(command, "\\\n", " "))...)
	quotas := c.kube.CoreV1().ResourceQuotas(ns)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { // until then what it counts is refused
		quota, err := quotas.Get(ctx, "sandlot", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) < len(quota.Spec.Hard) {
			err = fmt.Errorf("of %v the status has %v", quota.Spec.Hard, quota.Status.Hard)
		}
		return err
	})

	expect.FilledPool(t, c, ns, 2)
	c.claim(t, ns, builders.Claim("one", 1))
	expect.FullPool(t, c, ns, "pool", 2)
	want := map[corev1.ResourceName]int64{countClaims: 1, countSandboxes: 3, "count/sandboxsets.agents.kruise.io": 1, corev1.ResourcePods: 3}
	touched := time.Now()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, "sandlot", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(quota.Spec.Hard) < len(want) {
			t.Fatalf("the quota is %v", quota.Spec.Hard)
		}
		for what, n := range want {
			if used, counted := quota.Status.Used[what]; !counted || used.Value() != n {
				err = errors.Join(err, fmt.Errorf("of %s are used %s, want %d", what, used.String(), n))
			}
		}
		if err != nil && time.Since(touched) > 5*time.Second { // as in limit
			touched = time.Now()
			quota.Spec.Hard["count/configmaps"] = *resource.NewQuantity(touched.Unix(), resource.DecimalSI)
			_, updateErr := quotas.Update(ctx, quota, metav1.UpdateOptions{})
			err = errors.Join(err, updateErr)
		}
		return err
	})
}

// exceeded says whether a request was refused for want of a quota.
func exceeded(err error, what corev1.ResourceName) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: limit") && strings.Contains(err.Error(), string(what)+"=")
}

// limit creates a quota, of which so much is used already, and waits until all our
// servers know it. There is no room at first, so that they can be asked.
func (c *clients) limit(t testing.TB, ns string, what corev1.ResourceName, hard, used int64) {
	t.Helper()
	quotas := c.kube.CoreV1().ResourceQuotas(ns)
	quota, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "limit"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{what: *resource.NewQuantity(used, resource.DecimalSI)}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The quota controller learns of our kinds up to 30 s after the install. A quota
	// that is older it counts anew when it changes, or after five minutes.
	touched := time.Now()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		quota, err = quotas.Get(ctx, "limit", metav1.GetOptions{})
		if _, counted := quota.Status.Used[what]; err != nil || counted {
			return err
		}
		if time.Since(touched) > 5*time.Second {
			touched = time.Now()
			quota.Spec.Hard["count/configmaps"] = *resource.NewQuantity(touched.Unix(), resource.DecimalSI)
			_, err = quotas.Update(ctx, quota, metav1.UpdateOptions{})
		}
		return errors.Join(errors.New("not counted yet"), err)
	})
	c.awaitQuota(t, ns, what, used, func(err error) bool { return exceeded(err, what) })
	quota.Spec.Hard[what] = *resource.NewQuantity(hard, resource.DecimalSI)
	quota.ResourceVersion = ""
	if _, err := quotas.Update(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitQuota(t, ns, what, used, func(err error) bool { return err == nil })
}

// awaitQuota waits until so much of a quota is used, and every server answers to a
// dry run of one more as it should.
func (c *clients) awaitQuota(t testing.TB, ns string, what corev1.ResourceName, used int64, should func(error) bool) {
	t.Helper()
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		quota, err := c.kube.CoreV1().ResourceQuotas(ns).Get(ctx, "limit", metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, ok := quota.Status.Used[what]
		if hard := quota.Status.Hard[what]; !ok || have.Value() != used || !hard.Equal(quota.Spec.Hard[what]) {
			return fmt.Errorf("the quota is %v, its status %+v, used are %d", quota.Spec.Hard, quota.Status, used)
		}
		return nil
	})
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for i := range sandlot.APIServers() {
		server := c.direct(t, i)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			var err error
			if what == countClaims {
				_, err = server.SandboxClaims(ns).Create(ctx, builders.Claim("dry", 1), dry)
			} else {
				sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}
				sandbox.Spec.Template = builders.Set("", 0).Spec.Template
				_, err = server.Sandboxes(ns).Create(ctx, sandbox, dry)
			}
			if !should(err) {
				return fmt.Errorf("server %d answers %w", i, err)
			}
			return nil
		})
	}
}

// checkBound requires that so many sandboxes are bound, all of them to claims.
func (c *clients) checkBound(t testing.TB, ns string, want int) {
	t.Helper()
	claims, err := c.SandboxClaims(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sandboxes, err := c.Sandboxes(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var listed, locked []string
	for _, claim := range claims.Items {
		for _, sandbox := range claim.Status.Sandboxes {
			listed = append(listed, sandbox.Name)
		}
	}
	for _, sandbox := range sandboxes.Items {
		if sandbox.Annotations[v1alpha1.AnnotationLock] != "" && sandbox.Annotations[v1alpha1.AnnotationOwner] != v1alpha1.OwnerScaleDown {
			locked = append(locked, sandbox.Name)
		}
	}
	if len(listed) != want || len(locked) != want {
		t.Errorf("claims list %v, and %v are bound; want %d", listed, locked, want)
	}
}
