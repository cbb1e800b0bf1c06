// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/options"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// withAllPodMetadata lets all labels and annotations of claims reach pods, where no set and no
// template says it.
var withAllPodMetadata = testutil.WithConfig(func(c *apiserver.Config) {
	c.ExtraConfig.ClaimPodMetadata = apiserver.ClaimPodMetadataAll
})

// marked gives a claim labels and annotations for pods.
func marked(c *v1alpha1.SandboxClaim) {
	c.Spec.Labels = map[string]string{"part": "payments", "team": "rl", "example.com/part": "x"}
	c.Spec.Annotations = map[string]string{"note": "a"}
}

// podKeys are the keys of a sandbox's pod template that the claim may have brought.
func podKeys(t *testing.T, sb v1alpha1.Sandbox) string {
	t.Helper()
	var template metav1.PartialObjectMetadata
	if err := json.Unmarshal(sb.Spec.Template.Raw, &template); err != nil {
		t.Fatal(err)
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(template.Labels)), maps.Keys(template.Annotations))
	keys = slices.DeleteFunc(keys, func(key string) bool {
		return !slices.Contains([]string{"part", "team", "note", "example.com/part"}, key)
	})
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// TestPodMetadataPolicy: the set, else the template, else the installation says what of a
// claim's labels and annotations reaches pods, warm and fresh. The sandbox has all of it,
// and the client gets a warning of what was held back.
func TestPodMetadataPolicy(t *testing.T) {
	t.Parallel()
	for installation, byDefault := range map[string]string{
		"":                             "example.com/part note",
		apiserver.ClaimPodMetadataAll:  "example.com/part note part team",
		apiserver.ClaimPodMetadataNone: "",
	} {
		t.Run(cmp.Or(installation, options.NewClaimLimits().PodMetadata), func(t *testing.T) {
			s := start(t, testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.ClaimPodMetadata = installation }), withSyncWindow(time.Millisecond))
			client, heard := hearing(t, s)
			agents := client.AgentsV1alpha1()

			open := s.Template(t, namespace, "open")
			narrow := s.Template(t, namespace, "narrow")
			narrow.Spec.PodMetadataPolicy = &v1alpha1.PodMetadataPolicy{Labels: []string{"team"}, Annotations: []string{"n*"}}
			narrow, err := agents.SandboxTemplates(namespace).Update(t.Context(), narrow, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			sets := map[string]*v1alpha1.SandboxSet{
				"inline": s.Set(t, namespace, "inline", 1), "of-open": s.SetOf(t, open, "of-open", "", 1), "of-narrow": s.SetOf(t, narrow, "of-narrow", "", 1),
				"own": s.SetOf(t, narrow, "own", "", 1), "none": s.Set(t, namespace, "none", 1),
			}
			for name, policy := range map[string]*v1alpha1.PodMetadataPolicy{
				"own": {Labels: []string{"*"}}, "none": {},
			} {
				set := sets[name]
				set.Spec.PodMetadataPolicy = policy
				if sets[name], err = agents.SandboxSets(namespace).Update(t.Context(), set, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for _, set := range sets {
				s.Stock(t, set, 0, 1)
			}
			for source, want := range map[string]string{
				"inline": byDefault, "of-open": byDefault, "of-narrow": "note team", "own": "example.com/part part team", "none": "",
				"open": byDefault, "narrow": "note team",
			} {
				for _, kind := range []string{"warm", "fresh"} {
					claim := ofTemplate(kind+"-"+source, source, 1, marked, func(c *v1alpha1.SandboxClaim) {
						if sets[source] != nil {
							c.Spec.SandboxTemplateRef, c.Spec.TemplateName = nil, source
						} else {
							c.Spec.WarmPool = v1alpha1.WarmPoolNone
						}
						if kind == "fresh" {
							c.Spec.WarmPool = v1alpha1.WarmPoolNone
						}
					})
					if kind == "warm" && sets[source] == nil {
						continue
					}
					heard.take()
					made, err := agents.SandboxClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
					if err != nil {
						t.Fatal(err)
					}
					all := held(t, s, made)
					if len(all) != 1 {
						t.Fatalf("%s: %d sandboxes", claim.Name, len(all))
					}
					if sb := all[0]; sb.Labels["part"] != "payments" || sb.Labels["team"] != "rl" || sb.Annotations["note"] != "a" {
						t.Errorf("%s: the sandbox has %v, %v", claim.Name, sb.Labels, sb.Annotations)
					}
					if got := podKeys(t, all[0]); got != want {
						t.Errorf("%s: the pod template has %q, want %q", claim.Name, got, want)
					}
					var told []string
					for key, field := range map[string]string{"part": "spec.labels[part]", "team": "spec.labels[team]", "example.com/part": "spec.labels[example.com/part]", "note": "spec.annotations[note]"} {
						if !slices.Contains(strings.Fields(want), key) {
							told = append(told, field)
						}
					}
					slices.Sort(told)
					warned, _, _ := strings.Cut(heard.take(), "claimed 0/1 so far") // where the machine is slow
					names, _, _ := strings.Cut(warned, ": ")
					if diff := gocmp.Diff(strings.Join(told, ", "), names); diff != "" {
						t.Errorf("%s: warnings (-want +got):\n%s", claim.Name, diff)
					}
				}
			}
		})
	}
}

// held are the sandboxes that a claim holds, also those that only start.
func held(t *testing.T, s *testutil.Server, claim *v1alpha1.SandboxClaim) []v1alpha1.Sandbox {
	t.Helper()
	list, err := sandboxes(s).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=" + claim.Name})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// TestPodMetadataOfAGoneTemplate: what a template said is not known any more, so nothing
// passes.
func TestPodMetadataOfAGoneTemplate(t *testing.T) {
	s := start(t)
	template := s.Template(t, namespace, "gone")
	set := s.SetOf(t, template, "pool", "", 1)
	if err := s.Client.AgentsV1alpha1().SandboxTemplates(namespace).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n := 0
	expect.Eventually(t.Context(), t, func(context.Context) error { // its deletion comes by a watch
		s.Stock(t, set, n, 1)
		n++
		made := create(t, s, testutil.Claim(set, fmt.Sprintf("mine-%d", n), 1, marked))
		if all := held(t, s, made); len(all) != 1 || podKeys(t, all[0]) != "" || all[0].Labels["part"] != "payments" {
			return fmt.Errorf("claim %d holds %v", n, all)
		}
		return nil
	})
}

// TestPlatformKeys: what platforms act on is refused, by create and by apply.
func TestPlatformKeys(t *testing.T) {
	s, set := stocked(t, 1)
	claim := testutil.Claim(set, "mine", 1, func(c *v1alpha1.SandboxClaim) {
		c.Spec.Labels = map[string]string{"azure.workload.identity/use": "true", "app.kubernetes.io/name": "fine"}
	})
	_, err := claims(s).Create(t.Context(), claim, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.labels[azure.workload.identity/use]") || strings.Contains(err.Error(), "app.kubernetes.io") {
		t.Errorf("got %v", err)
	}
	if all := held(t, s, claim); len(all) != 0 {
		t.Errorf("holds %d sandboxes", len(all))
	}
}
