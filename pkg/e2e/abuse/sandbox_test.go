// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// podLabels returns the labels with which the pod of a claim's sandbox is made.
func (s *server) podLabels(t testing.TB, claim *v1alpha1.SandboxClaim) map[string]string {
	t.Helper()
	sandbox, err := s.Sandboxes(claim.Namespace).Get(t.Context(), expect.Claimed(t, claim, 1)[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var template struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(sandbox.Spec.Template.Raw, &template); err != nil {
		t.Fatal(err)
	}
	return template.Metadata.Labels
}

// TestLabelsOfAnotherTeam puts sandboxes behind the Service of another team, by labels
// that claims bring to the pods. Neither warm sandboxes nor fresh ones take them, where
// that is not wanted, and never instead of a template's own, nor what platforms act
// upon.
func TestLabelsOfAnotherTeam(t *testing.T) {
	labelled := func(metadata string, fresh bool) *v1alpha1.SandboxClaim {
		claim := builders.Claim("", 1)
		claim.GenerateName = "claim-"
		key, value, _ := strings.Cut(metadata, "=")
		claim.Spec.Labels = map[string]string{key: value}
		if fresh {
			claim.Spec.WarmPool, claim.Spec.CreateOnNoStock = "none", new(true)
		}
		return claim
	}
	create := func(s *server, claim *v1alpha1.SandboxClaim) (*v1alpha1.SandboxClaim, error) {
		return s.SandboxClaims(eve).Create(t.Context(), claim, metav1.CreateOptions{})
	}
	gold := builders.Set("pool", 2)
	gold.Spec.Template.Raw = []byte(strings.Replace(string(gold.Spec.Template.Raw), "{", `{"metadata":{"labels":{"team":"gold"}},`, 1))
	// check lets warm and fresh claims bring labels to pods that may not have them.
	check := func(t *testing.T, s *server, forbidden ...string) {
		t.Helper()
		for _, fresh := range []bool{false, true} {
			for _, label := range forbidden {
				claim, err := create(s, labelled(label, fresh))
				if apierrors.IsInvalid(err) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				key, value, _ := strings.Cut(label, "=")
				if got := s.podLabels(t, claim); got[key] == value || got["team"] != "gold" {
					t.Errorf("a claim (fresh: %t) with the label %s makes a pod with %v", fresh, label, got)
				}
			}
			_, err := create(s, labelled("sidecar.istio.io/inject=true", fresh))
			refused(t, err, "sidecar.istio.io/inject")
		}
	}
	t.Run("by default", func(t *testing.T) {
		s := startServer(t)
		s.makeSet(t, eve, gold.DeepCopy())
		check(t, s, "team=payments", "app=payments", "app.kubernetes.io/name=payments")
		claim, err := create(s, labelled("example.com/run=7", false))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.podLabels(t, claim); got["example.com/run"] != "7" {
			t.Errorf("the default takes labels with a prefix, but the pod is made with %v", got)
		}
		// The policy of the set holds from now on.
		patch := []byte(`{"spec":{"podMetadataPolicy":{}}}`)
		if _, err := s.SandboxSets(eve).Patch(t.Context(), "pool", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		check(t, s, "team=payments", "app=payments", "example.com/run=7")
	})
	t.Run("by the flag", func(t *testing.T) {
		s := startServer(t, "--claim-pod-metadata=None")
		s.makeSet(t, eve, gold.DeepCopy())
		check(t, s, "team=payments", "app=payments", "example.com/run=7")
	})
}

// TestForgedRevision lets a user who may write templates foresee the revision that a pool
// is about to have, and put a template of its name there that says it is the pool's and
// runs another image.
func TestForgedRevision(t *testing.T) {
	const good, evil, fed = "good:2", "evil:1", "eve-fed"
	s := startServer(t)
	makeSet := func(ns, image string, replicas int32) *v1alpha1.SandboxSet {
		t.Helper()
		template := builders.Template("shared")
		template.Spec.Template = builders.PodTemplateOf(image)
		if _, err := s.SandboxTemplates(ns).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		set := patchedSet("pool", "shared", nil)
		set.Spec.Replicas = &replicas
		s.makeSet(t, ns, set)
		set, err := s.SandboxSets(ns).Get(t.Context(), "pool", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	future := makeSet(fed, good, 0).Status.UpdateRevision // what the revision depends on is no secret
	set := makeSet(eve, "good:1", 2)
	forged := builders.Template(podtemplate.RevisionName(set, future))
	forged.Spec.Template = builders.PodTemplateOf(evil)
	forged.Labels = map[string]string{v1alpha1.LabelSandboxPool: "pool", v1alpha1.LabelTemplateHash: future}
	forged.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))}
	// It is kept from being tidied away by something that refers to it.
	user := patchedSet("user", forged.Name, nil)
	if _, err := s.SandboxSets(eve).Create(t.Context(), user, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.SandboxTemplates(eve).Create(t.Context(), forged, metav1.CreateOptions{})
	t.Logf("a forged revision: %v", err)

	edit := fmt.Appendf(nil, `{"spec":{"template":%s}}`, builders.PodTemplateOf(good).Raw)
	if _, err := s.SandboxTemplates(eve).Patch(t.Context(), "shared", types.MergePatchType, edit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := s.SandboxSets(eve).Get(ctx, "pool", metav1.GetOptions{})
		if err == nil && (set.Status.UpdateRevision != future || set.Status.UpdatedAvailableReplicas != 2) {
			err = fmt.Errorf("%+v", set.Status)
		}
		return err
	})
	for _, fresh := range []bool{false, true} {
		claim := builders.Claim("", 1)
		claim.GenerateName = "claim-"
		if fresh {
			claim.Spec.WarmPool, claim.Spec.CreateOnNoStock = "none", new(true)
		}
		created, err := s.SandboxClaims(eve).Create(t.Context(), claim, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		sandbox, err := s.Sandboxes(eve).Get(t.Context(), expect.Claimed(t, created, 1)[0], metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if raw := string(sandbox.Spec.Template.Raw); !strings.Contains(raw, good) {
			t.Errorf("a claim (fresh: %t) got %s", fresh, raw)
		}
	}
}

// TestNamesDoNotComeBack claims and deletes sandboxes again and again. A user who
// remembers the name of one never finds another by it.
func TestNamesDoNotComeBack(t *testing.T) {
	const each, rounds, random = 100, 15, 12
	s := startServer(t)
	s.makeSet(t, eve, builders.Set("pool", each))
	seen := map[string]string{}
	for round := range rounds {
		claim := builders.Claim(fmt.Sprintf("claim-%d", round), each)
		claim.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
		if round%3 == 2 {
			claim.Spec.WarmPool, claim.Spec.CreateOnNoStock = "none", new(true)
		}
		created, err := s.SandboxClaims(eve).Create(t.Context(), claim, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error { // where the refill is slow, the response has fewer
			created, err = s.SandboxClaims(eve).Get(ctx, claim.Name, metav1.GetOptions{})
			if err == nil && created.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
				err = fmt.Errorf("claim %s: %s", claim.Name, created.Status.Message)
			}
			return err
		})
		for _, name := range expect.Claimed(t, created, each) {
			if before, ok := seen[name]; ok {
				t.Errorf("%s of %s was one of %s", name, claim.Name, before)
			}
			seen[name] = claim.Name
			if suffix := strings.TrimPrefix(name, "pool-"); len(suffix) < random {
				t.Fatalf("%d random characters of the name %s will come back", len(suffix), name)
			}
		}
		if err := s.SandboxClaims(eve).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRelease lets a claimer give back what outlives the claim, and reach for what others
// have claimed.
func TestRelease(t *testing.T) {
	s := startServer(t)
	s.makeSet(t, eve, builders.Set("pool", 4))
	names := map[string][]string{}
	for _, name := range []string{"mine", "theirs"} {
		created, err := s.SandboxClaims(eve).Create(t.Context(), builders.Claim(name, 2), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names[name] = expect.Claimed(t, created, 2)
	}
	release := func(claim string, sandboxes ...string) error {
		body, err := json.Marshal(map[string]any{
			"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "SandboxClaimRelease",
			"spec": map[string]any{"sandboxNames": sandboxes},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s.RESTClient().Post().Namespace(eve).Resource("sandboxclaims").Name(claim).SubResource("release").
			SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error()
	}
	gone := func(name string) error {
		switch _, err := s.Sandboxes(eve).Get(t.Context(), name, metav1.GetOptions{}); {
		case err == nil:
			return errors.New("sandbox " + name + " is there")
		case !apierrors.IsNotFound(err):
			return err
		}
		return nil
	}
	expect.FullPool(t, s, eve, "pool", 4)
	pooled, err := s.Sandboxes(eve).List(t.Context(), metav1.ListOptions{LabelSelector: "!" + v1alpha1.LabelClaimName})
	if err != nil || len(pooled.Items) == 0 {
		t.Fatalf("%d in the pool, %v", len(pooled.Items), err)
	}
	for _, other := range append(names["theirs"], pooled.Items[0].Name) {
		err := release("mine", other)
		t.Logf("releasing a sandbox that is not one's own: %v", err)
		if _, err := s.Sandboxes(eve).Get(t.Context(), other, metav1.GetOptions{}); err != nil {
			t.Errorf("sandbox %s, which is not the claim's: %v", other, err)
		}
	}
	if err := release("mine", names["mine"][0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes(eve).Get(t.Context(), names["mine"][1], metav1.GetOptions{}); err != nil {
		t.Errorf("the other sandbox of the claim: %v", err)
	}
	if err := release("mine"); err != nil {
		t.Fatal(err)
	}
	for _, name := range names["mine"] {
		expect.Eventually(t.Context(), t, func(context.Context) error { return gone(name) })
	}
	for _, name := range names["theirs"] {
		if _, err := s.Sandboxes(eve).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}
