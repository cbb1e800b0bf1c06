// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/fake"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// world is a server, real or fake, with an empty pool, and what a client saw there.
type world struct {
	t      *testing.T
	agents typed.AgentsV1alpha1Interface
	set    *v1alpha1.SandboxSet
	// fill puts sandboxes into the pool.
	fill func(n int)
	seen []string
}

func (w *world) see(format string, args ...any) {
	w.seen = append(w.seen, fmt.Sprintf(format, args...))
}

func (w *world) claims() typed.SandboxClaimInterface { return w.agents.SandboxClaims(namespace) }

// create creates a claim, and notes the answer.
func (w *world) create(claim *v1alpha1.SandboxClaim, dryRun ...string) *v1alpha1.SandboxClaim {
	w.t.Helper()
	created, err := client.ClaimAndWait(w.t.Context(), w.agents, claim, client.Options{})
	if len(dryRun) > 0 {
		created, err = w.claims().Create(w.t.Context(), claim, metav1.CreateOptions{DryRun: dryRun})
	}
	w.error(err)
	if created == nil || created.Name == "" {
		return nil
	}
	w.note(created)
	return created
}

// note notes what is the same on every server: no names, times, UIDs and addresses. Of the
// message of a claim that continues the server may tell more.
func (w *world) note(claim *v1alpha1.SandboxClaim) {
	status := claim.Status
	message, _, _ := strings.Cut(status.Message, " claimed")
	message, _, _ = strings.Cut(message, " in namespace")
	if status.Phase == v1alpha1.SandboxClaimPhaseCompleted && status.ClaimedReplicas == *claim.Spec.Replicas {
		message = status.Message
	}
	message, _, _ = strings.Cut(message, " after")
	w.see("claim %s %s %d/%d, generation %d/%d, lists %d, %q", strings.TrimRight(claim.Name, "0123456789abcdefghijklmnopqrstuvwxyz"), status.Phase,
		status.ClaimedReplicas, *claim.Spec.Replicas, status.ObservedGeneration, claim.Generation, len(status.Sandboxes), message)
	w.see("spec %s %s %s %t %s %s %s", claim.Spec.Allocation, claim.Spec.OnShortage, claim.Spec.WarmPool, *claim.Spec.CreateOnNoStock,
		claim.Spec.ReclaimPolicy, claim.Spec.ClaimTimeout.Duration, claim.Spec.TTLAfterCompleted.Duration)
	if status.Phase == v1alpha1.SandboxClaimPhaseCompleted {
		conditions := map[string]string{}
		for _, c := range status.Conditions {
			conditions[c.Type] = string(c.Status) + "/" + c.Reason
		}
		w.see("conditions %v, times %t %t", conditions, status.ClaimStartTime != nil, status.CompletionTime != nil)
	}
	for _, sandbox := range status.Sandboxes {
		w.see("sandbox %t %t %d", sandbox.Name != "", sandbox.UID != "", len(sandbox.PodIPs))
	}
}

// error notes what a client can know of an error.
func (w *world) error(err error) {
	var status apierrors.APIStatus
	var short *client.IncompleteError
	switch {
	case err == nil:
	case errors.As(err, &short):
		w.see("incomplete: %s", short.Reason)
	case errors.As(err, &status):
		s := status.Status()
		var causes []string
		for _, cause := range s.Details.Causes {
			causes = append(causes, fmt.Sprintf("%s of %s", cause.Type, cause.Field))
		}
		after, told := client.RetryAfter(err)
		w.see("error %d %s %s %v, retry after %s %t", s.Code, s.Reason, s.Details.Name, causes, after, told)
	default:
		w.t.Errorf("error without a status: %v", err)
	}
}

// sandboxes notes those of a claim that are left, and how they are marked.
func (w *world) sandboxes(claim *v1alpha1.SandboxClaim) {
	w.t.Helper()
	list, err := w.agents.Sandboxes(namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelClaimName + "=" + claim.Name})
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for _, sb := range list.Items {
		marks := []string{sb.Labels["who"], sb.Annotations["why"], sb.Labels[v1alpha1.LabelSandboxClaimed], sb.Labels[v1alpha1.LabelSandboxPool]}
		its := sb.Annotations[v1alpha1.AnnotationOwner] == string(claim.UID) && sb.Annotations[v1alpha1.AnnotationLock] != "" &&
			sb.Annotations[v1alpha1.AnnotationPoolUID] == string(w.set.UID)
		lines = append(lines, fmt.Sprintf("%q %t %d owners %t", marks, its, len(sb.OwnerReferences), sb.Spec.ShutdownTime != nil))
	}
	slices.Sort(lines)
	w.see("sandboxes %q", lines)
}

// scenarios are what clients do. Each begins with an empty pool.
var scenarios = map[string]func(*world){
	"warm": func(w *world) {
		w.fill(3)
		claim := w.create(testutil.Claim(w.set, "warm", 2, func(c *v1alpha1.SandboxClaim) {
			c.Spec.Labels, c.Spec.Annotations = map[string]string{"who": "me"}, map[string]string{"why": "so"}
			c.Spec.ShutdownTime = &metav1.Time{Time: time.Now().Add(time.Hour)}
		}))
		w.sandboxes(claim)
		w.create(testutil.Claim(w.set, "warm", 1, fails))
		w.create(testutil.Claim(w.set, "other", 1, fails))
	},
	"generated names": func(w *world) {
		w.fill(2)
		for range 2 {
			claim := testutil.Claim(w.set, "", 1, fails)
			claim.GenerateName = "run-"
			created, err := w.claims().Create(w.t.Context(), claim, metav1.CreateOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			w.note(created)
		}
	},
	"shortage": func(w *world) {
		w.fill(2)
		w.create(testutil.Claim(w.set, "short", 3, fails))
		w.create(testutil.Claim(w.set, "short-all", 3, both(fails, allOrNothing)))
		w.create(testutil.Claim(w.set, "short", 2, fails))
	},
	"dry run": func(w *world) {
		w.fill(1)
		w.create(testutil.Claim(w.set, "dry", 1, waits), metav1.DryRunAll)
		w.create(testutil.Claim(w.set, "dry", 2, waits), metav1.DryRunAll)
		w.create(testutil.Claim(w.set, "dry", 2, fails), metav1.DryRunAll)
		w.create(testutil.Claim(w.set, "wet", 1, fails))
	},
	"no such set": func(w *world) {
		none := &v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nowhere"}}
		w.create(testutil.Claim(none, "fails", 1, fails))
		claim, err := w.claims().Create(w.t.Context(), testutil.Claim(none, "waits", 1, timeout(expect.Patience)), metav1.CreateOptions{})
		w.error(err)
		w.note(claim)
	},
	"invalid": func(w *world) {
		w.create(testutil.Claim(w.set, "none", 0, nil))
		w.create(testutil.Claim(&v1alpha1.SandboxSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, "nothing", 1, nil))
	},
	"waits for some":           waiting(waits, 1),
	"waits for all or nothing": waiting(both(waits, allOrNothing), 0),
	"ends short": func(w *world) {
		w.fill(1)
		claim, err := w.claims().Create(w.t.Context(), testutil.Claim(w.set, "short", 2, both(waits, timeout(expect.Patience))), metav1.CreateOptions{})
		w.error(err)
		w.eventually(claim.Name, func(c *v1alpha1.SandboxClaim) bool { return c.Status.ClaimedReplicas == 1 })
		if err := client.GiveBack(w.t.Context(), w.agents, claim); err != nil {
			w.t.Error(err)
		}
		w.sandboxes(claim)
		_, err = w.claims().Get(w.t.Context(), claim.Name, metav1.GetOptions{})
		w.error(err)
	},
	"release": func(w *world) {
		w.fill(3)
		claim := w.create(testutil.Claim(w.set, "run", 3, nil))
		one := claim.Status.Sandboxes[1].Name
		for _, names := range [][]string{{one}, {one}, nil, nil, {"not-its-own"}} {
			released, err := client.Release(w.t.Context(), w.agents, claim, names...)
			w.error(err)
			w.see("released %d", len(released))
			w.sandboxes(claim)
		}
		claim.UID = "another"
		_, err := client.Release(w.t.Context(), w.agents, claim)
		w.error(err)
		claim.Name = "another"
		_, err = client.Release(w.t.Context(), w.agents, claim)
		w.error(err)
	},
	"delete": func(w *world) {
		w.fill(2)
		kept := w.create(testutil.Claim(w.set, "kept", 1, nil))
		owned := w.create(testutil.Claim(w.set, "owned", 1, func(c *v1alpha1.SandboxClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete }))
		w.sandboxes(owned)
		for _, claim := range []*v1alpha1.SandboxClaim{kept, kept, owned} {
			w.error(w.claims().Delete(w.t.Context(), claim.Name, metav1.DeleteOptions{}))
		}
		w.sandboxes(kept)
	},
}

// waiting is the scenario of a claim of two that finds one sandbox, and takes so many of it.
func waiting(change func(*v1alpha1.SandboxClaim), takes int32) func(*world) {
	return func(w *world) {
		w.fill(1)
		claim, err := w.claims().Create(w.t.Context(), testutil.Claim(w.set, "patient", 2, both(change, timeout(expect.Patience))), metav1.CreateOptions{})
		w.error(err)
		w.eventually(claim.Name, func(c *v1alpha1.SandboxClaim) bool { return c.Status.ClaimedReplicas == takes })
		_, err = client.Release(w.t.Context(), w.agents, claim)
		w.error(err)
		w.fill(1)
		w.eventually(claim.Name, func(c *v1alpha1.SandboxClaim) bool { return c.Status.Phase == v1alpha1.SandboxClaimPhaseCompleted })
		w.sandboxes(claim)
	}
}

// eventually waits until a claim is as it should be, and notes it.
func (w *world) eventually(name string, is func(*v1alpha1.SandboxClaim) bool) {
	w.t.Helper()
	expect.Eventually(w.t.Context(), w.t, func(ctx context.Context) error {
		claim, err := w.claims().Get(ctx, name, metav1.GetOptions{})
		if err != nil || !is(claim) {
			return fmt.Errorf("claim %s is %+v: %w", name, claim.Status, err)
		}
		w.note(claim)
		return nil
	})
}

// Clients see of the fake what they see of a server.
func TestTheFakeIsLikeTheServer(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(name, func(t *testing.T) {
			s, set := stocked(t, 0, withSyncWindow(time.Millisecond))
			stock := 0
			server := &world{t: t, agents: clientOver(t, s, &wire{}), set: set}
			server.fill = func(n int) {
				s.Stock(t, set, stock, n)
				stock += n
			}
			scenarios[name](server)

			its := builders.Set(set.Name, 0)
			its.Namespace = namespace
			clients := fake.NewClientset(its)
			stored, err := clients.AgentsV1alpha1().SandboxSets(namespace).Get(t.Context(), set.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pretended := &world{t: t, agents: clients.AgentsV1alpha1(), set: stored}
			pretended.fill = func(n int) {
				if _, err := clients.Fill(namespace, set.Name, n); err != nil {
					t.Fatal(err)
				}
			}
			scenarios[name](pretended)
			if diff := cmp.Diff(server.seen, pretended.seen); diff != "" {
				t.Errorf("the fake differs (-server +fake):\n%s", diff)
			}
		})
	}
}
