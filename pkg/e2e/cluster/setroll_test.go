// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/podtemplate"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// makeTemplateOf makes a SandboxTemplate with an image.
func (c *clients) makeTemplateOf(t testing.TB, ns, name, image string) {
	t.Helper()
	template := &v1alpha1.SandboxTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.Template = &runtime.RawExtension{Raw: []byte(podOf(image))}
	if _, err := c.SandboxTemplates(ns).Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func podOf(image string) string {
	return fmt.Sprintf(`{"spec":{"containers":[{"name":"main","image":%q}]}}`, image)
}

// editTemplate gives a SandboxTemplate another image.
func (c *clients) editTemplate(t testing.TB, ns, name, image string) {
	t.Helper()
	edit := fmt.Sprintf(`{"spec":{"template":%s}}`, podOf(image))
	if _, err := c.SandboxTemplates(ns).Patch(t.Context(), name, types.MergePatchType, []byte(edit), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// makeReferring makes a set of a SandboxTemplate, with a patch if that is not empty,
// and waits until it is full.
func (c *clients) makeReferring(t testing.TB, ns, name, template, patch string, replicas int32) {
	t.Helper()
	set := builders.Set(name, replicas)
	set.Spec.Template, set.Spec.TemplateRef = nil, &v1alpha1.SandboxTemplateRef{Name: template}
	set.Spec.RevisionHistoryLimit = new(int32(0))
	if patch != "" {
		set.Spec.Patch = &runtime.RawExtension{Raw: []byte(patch)}
	}
	if _, err := c.SandboxSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect.FullPool(t, c, ns, name, replicas)
}

// awaitRolledOut waits until all unused sandboxes of a set are of a revision with
// this text, and returns the revision. It need not be full: claims continue.
func (c *clients) awaitRolledOut(t testing.TB, ns, name, text string) string {
	t.Helper()
	revision := ""
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		set, err := c.SandboxSets(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder, err := c.SandboxTemplates(ns).Get(ctx, podtemplate.HolderOf(&set.Status), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !strings.Contains(string(holder.Spec.Template.Raw), text) {
			return fmt.Errorf("set %s is at %s", name, holder.Spec.Template.Raw)
		}
		if s := set.Status; s.Replicas == 0 || s.UpdatedReplicas != s.Replicas || s.UpdatedAvailableReplicas == 0 {
			return fmt.Errorf("set %s has the status %+v", name, s)
		}
		revision = set.Status.UpdateRevision
		return nil
	})
	return revision
}

// TestRollOutUnderClaims rolls a template out to a pool of 100 while claims take up to
// 20 a second. What the roll-out deletes never brings the pool below its floor, no
// claim finds nothing, and what is claimed is new as soon as there is something new.
func TestRollOutUnderClaims(t *testing.T) {
	t.Parallel()
	const (
		replicas = 100
		floor    = 80 // updateStrategy.maxUnavailable is 20%
		// known is after how many claims all watches have heard of one, and of a
		// sandbox that was available by then: a second's worth, of 4 clients.
		known = 20
	)
	c, ns := admin(t), namespace(t)
	c.makeTemplateOf(t, ns, "base", "busybox:1")
	c.makeReferring(t, ns, "pool", "base", "", replicas)
	recording := c.record(t, ns)

	crowd := c.start(t, &crowd{namespace: ns, name: "load", clients: 4, replicas: 1, pause: 200 * time.Millisecond, fails: true, stock: 20})
	crowd.AwaitMore(t, 5)
	c.editTemplate(t, ns, "base", "busybox:2")
	crowd.AwaitMore(t, 160)
	crowd.Stop()
	crowd.checkFailures(t)
	// As long as claims keep a pool below its floor, a roll-out takes nothing away.
	newest := c.awaitRolledOut(t, ns, "pool", "busybox:2")
	story := recording.tell(t, recording.end(t), newest)
	sentAfter := map[string]int{}
	for _, told := range crowd.Answers() {
		sentAfter[expect.Claimed(t, told.Claim, 1)[0]] = told.After
	}

	if story.oldLeft > 0 {
		t.Errorf("%d sandboxes of the old revision are left", story.oldLeft)
	}
	if got, want := len(story.taken), len(crowd.Answers()); got != want {
		t.Errorf("%d sandboxes were taken, by %d claims", got, want)
	}
	least, old := replicas, 0
	for _, r := range story.removed {
		least = min(least, r.left)
		if r.left < floor-known {
			t.Errorf("deleted %s of at least %d", r, floor)
		}
		if r.revision == newest {
			t.Errorf("deleted %s, which is the new one", r)
		}
	}
	for i, claim := range story.taken {
		if claim.revision == newest {
			continue
		}
		old++
		// What it takes is chosen after it is sent, however long it takes from then on.
		if since := i - claim.newer; claim.newer >= 0 && sentAfter[claim.name]-since > known {
			t.Errorf("claim %d, sent after %d, took the old %s; of %d new ones, %s had been available since claim %d",
				i, sentAfter[claim.name], claim.name, claim.stock, claim.waiting, since)
		}
	}
	t.Logf("%d claims, %d of the old revision; %d deleted, which left %d at least", len(story.taken), old, len(story.removed), least)
	if len(story.removed) == 0 || old == 0 || old == len(story.taken) {
		t.Error("the roll-out and the claims did not meet")
	}
	expect.FullPool(t, c, ns, "pool", replicas)
}

// TestSharedTemplateUnderClaims edits a template twice while claims take from two
// sets that share it. Both follow, each with its patch, and whatever is claimed is
// one of the revisions as a whole.
func TestSharedTemplateUnderClaims(t *testing.T) {
	t.Parallel()
	expect.LongOnly(t)
	const replicas = 30
	c, ns := admin(t), namespace(t)
	c.makeTemplateOf(t, ns, "base", "busybox:1")
	c.makeReferring(t, ns, "pool", "base", "", replicas)
	c.makeReferring(t, ns, "large", "base", `{"metadata":{"labels":{"size":"large"}}}`, replicas)
	crowds := map[string]*crowd{}
	for _, set := range []string{"pool", "large"} {
		crowds[set] = c.start(t, &crowd{namespace: ns, name: set, set: set, clients: 2, replicas: 1, pause: 400 * time.Millisecond})
	}
	crowds["pool"].AwaitMore(t, 3)
	c.editTemplate(t, ns, "base", "busybox:2")
	crowds["large"].AwaitMore(t, 3) // the second edit comes into the roll-out of the first
	c.editTemplate(t, ns, "base", "busybox:3")
	revisions := map[string]string{}
	for set := range crowds {
		revisions[set] = c.awaitRolledOut(t, ns, set, "busybox:3")
	}
	if revisions["pool"] == revisions["large"] {
		t.Errorf("both sets are at revision %s, one of them patched", revisions["pool"])
	}
	for set, crowd := range crowds {
		crowd.AwaitMore(t, 3)
		crowd.Stop()
		crowd.checkFailures(t)
		images := map[string]int{}
		for _, told := range crowd.Answers() {
			name := expect.Claimed(t, told.Claim, 1)[0]
			pod := c.pod(t, ns, name)
			image := pod.Spec.Containers[0].Image
			images[image]++
			if want := map[string]string{"pool": "", "large": "large"}[set]; pod.Labels["size"] != want {
				t.Errorf("a pod of set %s with the image %s is of size %q", set, image, pod.Labels["size"])
			}
		}
		t.Logf("claimed from %s: %v", set, images)
		if images["busybox:1"] == 0 || images["busybox:3"] == 0 {
			t.Errorf("claimed from %s: %v", set, images)
		}
		expect.FullPool(t, c, ns, set, replicas)
	}
	// The template and a revision of each set.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error { return c.onlyTemplates(ctx, ns, 3) })
}
