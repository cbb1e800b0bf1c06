// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestShortClaimsAreTold: a create that does not get what it asks for says so, and why,
// in every way to create a claim; one that gets all says nothing.
func TestShortClaimsAreTold(t *testing.T) {
	s := start(t, withSyncWindow(300*time.Millisecond))
	set := s.Set(t, namespace, "pool", 2)
	s.Stock(t, set, 0, 4)
	client, heard := hearing(t, s)
	api := client.AgentsV1alpha1().RESTClient()
	const goesOn = "; it continues in the background: kubectl get sandboxclaim c --namespace default --watch"
	tests := map[string]struct {
		change                     func(*v1alpha1.SandboxClaim)
		replicas                   int32
		dryRun, created, completed string
	}{
		"all": {replicas: 1, change: func(*v1alpha1.SandboxClaim) {}},
		"no set": {
			replicas: 1, change: func(c *v1alpha1.SandboxClaim) { c.Spec.TemplateName = "pyton" },
			dryRun:  `dry run: claimed 0/1: SandboxSet pyton not found in namespace default`,
			created: `claimed 0/1: SandboxSet pyton not found in namespace default` + goesOn,
		},
		"no such pool": {
			replicas: 1, change: func(c *v1alpha1.SandboxClaim) { c.Spec.WarmPool = "gold" },
			dryRun:  `dry run: claimed 0/1: SandboxSet gold not found in namespace default`,
			created: `claimed 0/1: SandboxSet gold not found in namespace default` + goesOn,
		},
		"too few, for a while": {replicas: 100, change: waits, created: "claimed "},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) { // the last one takes all that there are
		tc := tests[name]
		t.Run(name, func(t *testing.T) {
			claim := testutil.Claim(set, "c", tc.replicas, nil)
			claim.Spec.TTLAfterCompleted = &metav1.Duration{Duration: -time.Second} // or applying it is warned of
			tc.change(claim)
			claim.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "SandboxClaim"}
			body, err := json.Marshal(claim)
			if err != nil {
				t.Fatal(err)
			}
			for how, create := range map[string]func(dryRun *metav1.CreateOptions) error{
				"create": func(dryRun *metav1.CreateOptions) error {
					return api.Post().Namespace(namespace).Resource("sandboxclaims").VersionedParams(dryRun, metav1.ParameterCodec).Body(body).Do(t.Context()).Error()
				},
				"apply": func(dryRun *metav1.CreateOptions) error {
					return api.Patch(types.ApplyYAMLPatchType).Namespace(namespace).Resource("sandboxclaims").Name("c").
						Param("fieldManager", "test").VersionedParams(dryRun, metav1.ParameterCodec).Body(body).Do(t.Context()).Error()
				},
			} {
				if err := create(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
					t.Fatal(err)
				}
				if got := heard.take(); got != tc.dryRun {
					t.Errorf("%s, dry run: %q, want %q", how, got, tc.dryRun)
				}
				if err := create(&metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				if got := heard.take(); !strings.HasPrefix(got, tc.created) || tc.created == "" && got != "" || tc.created != "" && !strings.HasSuffix(got, goesOn) {
					t.Errorf("%s: %q, want %q", how, got, tc.created)
				}
				if err := claims(s).Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	t.Run("ended", func(t *testing.T) {
		claim := testutil.Claim(set, "short", 1, nil)
		claim.Spec.TemplateName, claim.Spec.Lifecycle = "pyton", &v1alpha1.SandboxClaimLifecycle{ShutdownTime: &metav1.Time{Time: time.Now().Add(-time.Hour)}}
		if _, err := client.AgentsV1alpha1().SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := heard.take(); !strings.Contains(got, "claimed 0/1: Claim expired") || strings.Contains(got, goesOn) {
			t.Errorf("%q", got)
		}
	})
}

// TestDeletionsSayWhatStays: of claims and sets, each alone and all at once, and of dry
// runs. Who deletes by what it has read, as controllers do, is not told.
func TestDeletionsSayWhatStays(t *testing.T) {
	s := start(t)
	template := s.Template(t, namespace, "base")
	set := s.SetOf(t, template, "pool", "", 0)
	s.Stock(t, set, 0, 7)
	for name, replicas := range map[string]int32{"one": 2, "two": 1, "three": 1} {
		create(t, s, testutil.Claim(set, name, replicas, nil))
	}
	owner := testutil.Claim(set, "owner", 1, nil)
	owner.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	create(t, s, owner)
	client, heard := hearing(t, s)
	agents := client.AgentsV1alpha1()

	const claimed = "agents.kruise.io/sandbox-claimed=true"
	all := metav1.ListOptions{}
	deletions := []struct {
		what string
		do   func(options metav1.DeleteOptions) error
		want string
	}{
		{"the claim that takes its own along", func(o metav1.DeleteOptions) error {
			return agents.SandboxClaims(namespace).Delete(t.Context(), "owner", o)
		}, ""},
		{"a claim", func(o metav1.DeleteOptions) error {
			return agents.SandboxClaims(namespace).Delete(t.Context(), "one", o)
		}, "2 sandboxes of claim one stay: release them before the claim is deleted, or delete what is left: " +
			"kubectl delete sandboxes --namespace default --selector agents.kruise.io/claim-name=one"},
		{"claims", func(o metav1.DeleteOptions) error {
			return agents.SandboxClaims(namespace).DeleteCollection(t.Context(), o, all)
		}, "2 sandboxes of 2 claims stay: release them before the claims are deleted, or delete them: " +
			"kubectl get sandboxes --namespace default --selector " + claimed},
		{"a template", func(o metav1.DeleteOptions) error {
			return agents.SandboxTemplates(namespace).Delete(t.Context(), "base", o)
		}, "SandboxTemplate base is in use: these SandboxSets continue with what they have of it, and cannot change until it exists again: pool"},
		{"a set", func(o metav1.DeleteOptions) error {
			return agents.SandboxSets(namespace).Delete(t.Context(), "pool", o)
		}, "4 claimed sandboxes of SandboxSet pool stay with those who claimed them: " +
			"kubectl get sandboxes --namespace default --selector " + claimed + ",agents.kruise.io/sandbox-pool=pool"},
	}
	for _, deletion := range deletions {
		if deletion.what == "a set" { // when its own are gone
			if err := sandboxes(s).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "agents.kruise.io/claim-name=owner"}); err != nil {
				t.Fatal(err)
			}
		}
		// Warnings are of what the watch cache knows, a moment later.
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if err := deletion.do(metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Fatal(err)
			}
			if got := heard.take(); got != deletion.want {
				return fmt.Errorf("dry run of deleting %s: %q, want %q", deletion.what, got, deletion.want)
			}
			return nil
		})
		if err := deletion.do(metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := heard.take(); got != deletion.want {
			t.Errorf("deleting %s: %q, want %q", deletion.what, got, deletion.want)
		}
	}
	again := create(t, s, testutil.Claim(set, "again", 1, nil))
	err := agents.SandboxClaims(namespace).Delete(t.Context(), "again", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(again.UID))})
	if err != nil || heard.take() != "" {
		t.Errorf("who deletes by a UID is told: %v", err)
	}
}
