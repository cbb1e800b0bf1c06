// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// at is a call that took the time from start to end.
func at(start, end int, c call) *call {
	c.Start, c.End, c.Namespace = time.Duration(start), time.Duration(end), "ns"
	if c.Verb == createClaim && c.Attempt == "" {
		c.Attempt = c.Name
	}
	return &c
}

// created and the others are calls with an outcome; got and deleted are of the claim a.
func created(name string, replicas int, sandboxes ...types.UID) call {
	return call{Verb: createClaim, Name: name, Replicas: replicas, Outcome: succeeded, UID: types.UID("uid-" + name), Sandboxes: sandboxes, Revision: 1}
}

func got(sandboxes ...types.UID) call {
	return call{Verb: getClaim, Name: "a", Outcome: succeeded, UID: "uid-a", Sandboxes: sandboxes}
}

func deleted() call {
	return call{Verb: deleteClaim, Name: "a", UID: "uid-a", Outcome: succeeded}
}

func released(name string) call {
	return call{Verb: releaseSandbox, Name: name, UID: types.UID(name), Outcome: succeeded}
}

// but is a call with another outcome, and nothing that was answered.
func but(c call, o outcome) call {
	c.Outcome, c.Sandboxes, c.Revision = o, nil, 0
	if c.Verb == createClaim || c.Verb == getClaim {
		c.UID = ""
	}
	return c
}

// allOf is a claim of all or nothing.
func allOf(c call) call {
	c.AllOrNothing = true
	return c
}

// TestModel: histories that are possible, and some that are not.
func TestModel(t *testing.T) {
	for _, test := range []struct {
		name     string
		possible bool
		calls    []*call
	}{
		{"a claim and a get", true, []*call{at(1, 2, created("a", 2, "x", "y")), at(3, 4, got("x", "y"))}},
		{"a get at the same time finds it", true, []*call{at(1, 5, created("a", 1, "x")), at(2, 3, got("x"))}},
		{"a get at the same time does not find it", true, []*call{at(1, 5, created("a", 1, "x")), at(2, 3, but(got(), notFound))}},
		{"a claim gets more", true, []*call{at(1, 2, created("a", 2, "x")), at(3, 4, got("x", "y")), at(5, 6, got("x", "y"))}},
		{"the name of a deleted claim", true, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, deleted()), at(5, 6, created("a", 1, "y"))}},
		{"a refused claim", true, []*call{at(1, 2, but(created("a", 1), refused)), at(3, 4, but(got(), notFound))}},
		{"two namespaces", true, []*call{at(1, 2, created("a", 1, "x")), {Verb: createClaim, Namespace: "other", Name: "a", Replicas: 1, Outcome: succeeded, Start: 3, End: 4}}},

		{"a sandbox for two claims", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, created("b", 1, "x"))}},
		{"a sandbox for two claims at the same time", false, []*call{at(1, 5, created("a", 1, "x")), at(2, 4, created("b", 1, "x"))}},
		{"a sandbox twice", false, []*call{at(1, 2, created("a", 2, "x", "x"))}},
		{"a sandbox of a deleted claim", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, deleted()), at(5, 6, created("b", 1, "x"))}},
		{"a sandbox that was released", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, released("x")), at(5, 6, created("b", 1, "x"))}},
		{"a part of all or nothing", false, []*call{at(1, 2, allOf(created("a", 3, "x", "y")))}},
		{"a part of all or nothing in a get", false, []*call{at(1, 2, allOf(created("a", 3))), at(3, 4, got("x"))}},
		{"more than asked", false, []*call{at(1, 2, created("a", 1, "x", "y"))}},
		{"a claim loses a sandbox", false, []*call{at(1, 2, created("a", 2, "x", "y")), at(3, 4, got("x"))}},
		{"a claim changes a sandbox", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, got("y"))}},
		{"refused and there", false, []*call{at(1, 2, but(created("a", 1), refused)), at(3, 4, got("x"))}},
		{"answered and not there", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, but(got(), notFound))}},
		{"an old state after a newer one", false, []*call{at(1, 2, created("a", 2, "x")), at(3, 4, got("x", "y")), at(5, 6, got("x"))}},
		{"deleted and there", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, deleted()), at(5, 6, got("x"))}},
		{"a name for two claims", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, created("a", 1, "y"))}},
		{"it exists, and does not", false, []*call{at(1, 2, but(created("a", 1), exists))}},
		{"another claim of the name", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, call{Verb: getClaim, Name: "a", Outcome: succeeded, UID: "other", Sandboxes: []types.UID{"x"}})}},
		{"released twice", false, []*call{at(1, 2, created("a", 1, "x")), at(3, 4, released("x")), at(5, 6, released("x"))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			problems, info := linearize(test.calls, time.Minute)
			if possible := len(problems) == 0; possible != test.possible {
				t.Errorf("possible: %t, want %t: %q", possible, test.possible, problems)
			}
			if err := porcupine.Visualize(poolModel, info, &strings.Builder{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// stored is a claim as a transaction wrote it.
func stored(revision int64, isNew bool, name string, replicas int, sandboxes ...types.UID) change {
	claim := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{attemptAnnotation: name},
	}}
	claim.Spec.Replicas = new(int32(replicas))
	claim.Status.ClaimedReplicas, claim.Status.Phase = int32(len(sandboxes)), v1alpha1.SandboxClaimPhaseCompleted
	for _, uid := range sandboxes {
		claim.Status.Sandboxes = append(claim.Status.Sandboxes, v1alpha1.ClaimedSandbox{Name: string(uid), UID: uid})
	}
	return change{Revision: revision, Seen: time.Duration(revision), Resource: "sandboxclaims", Namespace: "ns", Name: name, Claim: claim, Created: isNew}
}

// bound is the sandbox x as a transaction wrote it, of a claim or, without one, in a pool.
func bound(revision int64, claim string) change {
	const uid = "x"
	sandbox := &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: uid}}
	if claim != "" {
		sandbox.Annotations = map[string]string{v1alpha1.AnnotationOwner: "uid-" + claim, v1alpha1.AnnotationLock: "uid-" + claim}
		sandbox.Labels = map[string]string{v1alpha1.LabelClaimName: claim, v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedTrue}
	} else {
		sandbox.Labels = map[string]string{v1alpha1.LabelSandboxClaimed: v1alpha1.ClaimedFalse}
		sandbox.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&v1alpha1.SandboxSet{
			ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "pool"},
		}, v1alpha1.SchemeGroupVersion.WithKind("SandboxSet"))}
	}
	return change{Revision: revision, Seen: time.Duration(revision), Resource: "sandboxes", Namespace: "ns", Name: uid, Sandbox: sandbox}
}

// gone is an object that a transaction deleted.
func gone(revision int64, resource, name string) change {
	return change{Revision: revision, Seen: time.Duration(revision), Resource: resource, Namespace: "ns", Name: name}
}

// TestResolve: answers that agree with what was stored, and some that do not.
func TestResolve(t *testing.T) {
	for _, test := range []struct {
		name    string
		problem string // empty if there is to be none
		// resolved is how many calls are left.
		resolved int
		calls    []*call
		changes  []change
	}{
		{"answered and stored", "", 1, []*call{at(0, 3, created("a", 1, "x"))}, []change{stored(1, true, "a", 1, "x")}},
		{"unknown and stored", "", 1, []*call{at(0, 3, but(created("a", 1), unknown))}, []change{stored(9, true, "a", 1, "x")}},
		{"unknown and not stored", "", 0, []*call{at(0, 3, but(created("a", 1), unknown))}, nil},
		{"answered after more was bound", "", 2, []*call{at(0, 9, call{Verb: createClaim, Name: "a", Replicas: 2, Outcome: succeeded, UID: "uid-a", Sandboxes: []types.UID{"x", "y"}, Revision: 5})},
			[]change{stored(1, true, "a", 2, "x"), stored(5, false, "a", 2, "x", "y")}},
		{"unknown delete that was carried out", "", 2, []*call{at(0, 3, created("a", 1, "x")), at(4, 5, but(deleted(), unknown))},
			[]change{stored(1, true, "a", 1, "x"), gone(7, "sandboxclaims", "a")}},
		{"unknown delete that was not", "", 1, []*call{at(0, 3, created("a", 1, "x")), at(4, 5, but(deleted(), unknown))}, []change{stored(1, true, "a", 1, "x")}},

		{"refused and stored", "is stored at revision 1", 0, []*call{at(0, 3, but(created("a", 1), refused))}, []change{stored(1, true, "a", 1, "x")}},
		{"exists, by this create", "is stored at revision 1", 0, []*call{at(0, 3, but(created("a", 1), exists))}, []change{stored(1, true, "a", 1, "x")}},
		{"a dry run that is stored", "is stored at revision 1", 0, []*call{at(0, 3, call{Verb: createClaim, Name: "a", DryRun: true, Outcome: succeeded})}, []change{stored(1, true, "a", 1, "x")}},
		{"answered and not stored", "is not stored", 1, []*call{at(0, 3, created("a", 1, "x"))}, nil},
		{"answered with others than stored", "no such state", 1, []*call{at(0, 3, created("a", 1, "x"))}, []change{stored(1, true, "a", 1, "y")}},
		{"stored twice", "stored twice", 2, []*call{at(0, 3, created("a", 1, "x"))}, []change{stored(1, true, "a", 1, "x"), gone(2, "sandboxclaims", "a"), stored(3, true, "a", 1, "x")}},
		{"stored for no client", "no client created it", 0, nil, []change{stored(1, true, "a", 1, "x")}},
		{"deleted by no client", "no client deleted it", 1, []*call{at(0, 3, created("a", 1, "x"))}, []change{stored(1, true, "a", 1, "x"), gone(2, "sandboxclaims", "a")}},
		{"deleted and there", "is still there", 2, []*call{at(0, 3, created("a", 1, "x")), at(4, 5, deleted())}, []change{stored(1, true, "a", 1, "x")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			resolved, problems := resolve(test.calls, test.changes)
			requireProblem(t, test.problem, problems)
			if len(resolved) != test.resolved {
				t.Errorf("%d calls are left, want %d: %v", len(resolved), test.resolved, resolved)
			}
		})
	}
}

// requireProblem requires that a problem is among those that were found or, if it is empty, that there is none.
func requireProblem(t *testing.T, want string, problems []string) {
	t.Helper()
	if all := strings.Join(problems, "\n"); want == "" && all != "" || !strings.Contains(all, want) {
		t.Errorf("found %q, want %q", all, want)
	}
}

// TestStoreChecker: states of the store that are good, and some that are not.
func TestStoreChecker(t *testing.T) {
	for _, test := range []struct {
		name    string
		problem string
		changes []change
	}{
		{"a claim", "", []change{bound(1, ""), stored(2, true, "a", 1, "x"), bound(2, "a")}},
		{"a deleted claim", "", []change{bound(1, ""), stored(2, true, "a", 1, "x"), bound(2, "a"), gone(3, "sandboxclaims", "a"), gone(4, "sandboxes", "x")}},
		{"two claims", "was bound to claim uid-a, and is bound to uid-b", []change{
			stored(2, true, "a", 1, "x"), bound(2, "a"), gone(3, "sandboxclaims", "a"), stored(4, true, "b", 1, "x"), bound(4, "b"),
		}},
		{"back in its pool", "is in its pool", []change{stored(2, true, "a", 1, "x"), bound(2, "a"), gone(3, "sandboxclaims", "a"), bound(4, "")}},
		{"bound later than listed", "ListedNotBound", []change{bound(1, ""), stored(2, true, "a", 1, "x"), bound(3, "a")}},
		{"bound and not listed", "BoundNotListed", []change{bound(1, "a"), stored(1, true, "a", 1)}},
		{"listed by two", "ListedByTwo", []change{bound(1, "a"), stored(1, true, "a", 1, "x"), stored(2, true, "b", 1, "x")}},
		{"no longer listed", "does not list sandbox x any more", []change{bound(1, "a"), stored(1, true, "a", 1, "x"), stored(2, false, "a", 1)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			requireProblem(t, test.problem, checkStore(test.changes))
		})
	}
}

// TestStreams: streams of watches that are good, and some that are not.
func TestStreams(t *testing.T) {
	changes := []change{
		stored(2, true, "a", 1), stored(4, true, "b", 1), stored(4, true, "c", 1), stored(6, false, "a", 1, "x"), gone(8, "sandboxclaims", "b"),
	}
	seen := func(revision int64, kind watch.EventType, name string) event {
		return event{Type: kind, Revision: revision, Key: "sandboxclaims/ns/" + name}
	}
	bookmark := func(revision int64) event { return event{Type: watch.Bookmark, Revision: revision} }
	a, b, c := seen(2, watch.Added, "a"), seen(4, watch.Added, "b"), seen(4, watch.Added, "c")
	changed, removed := seen(6, watch.Modified, "a"), seen(8, watch.Deleted, "b")
	from := func(revision int64, events ...event) *stream { return &stream{From: revision, Events: events} }
	continued := func(revision int64, events ...event) *stream {
		return &stream{From: revision, Events: events, Continues: true}
	}
	for _, test := range []struct {
		name    string
		problem string
		streams []*stream
	}{
		{"all", "", []*stream{from(1, a, b, c, changed, removed)}},
		{"of a revision in any order", "", []*stream{from(1, a, c, b, changed)}},
		{"from a list", "", []*stream{from(4, changed, removed)}},
		{"continued", "", []*stream{from(1, a, b, c), continued(4, changed, removed)}},
		{"continued with its revision again", "", []*stream{from(1, a, b, c), continued(4, b, c, changed)}},
		{"continued in a revision", "", []*stream{from(1, a, b), continued(4, b, c, changed)}},
		{"after a new list", "", []*stream{from(1, a), from(6, removed)}},
		{"bookmarks", "", []*stream{from(1, bookmark(1), a, bookmark(3), b, c, bookmark(5)), continued(5, bookmark(5), changed)}},
		{"a bookmark in a revision", "", []*stream{from(1, a, b, bookmark(4), c, changed)}},
		{"continued from a bookmark in a revision", "", []*stream{from(1, a, b, bookmark(4)), continued(4, b, c, changed)}},

		{"a revision is missing", "revision 4 is missing", []*stream{from(1, a, changed)}},
		{"a part of a revision is missing", "sandboxclaims/ns/c at revision 4 is missing", []*stream{from(1, a, b, changed)}},
		{"a part of a revision is missing after a reconnect", "sandboxclaims/ns/c at revision 4 is missing", []*stream{from(1, a, b), continued(4, changed)}},
		{"a revision is missing after a reconnect", "revision 6 is missing", []*stream{from(1, a, b, c), continued(4, removed)}},
		{"a revision is missing after a list", "revision 6 is missing", []*stream{from(4, removed)}},
		{"a bookmark that is too early", "bookmark of revision 4 before", []*stream{from(1, a, bookmark(4), b, c)}},
		{"a part of a revision is missing after a bookmark", "sandboxclaims/ns/c at revision 4 is missing", []*stream{from(1, a, b, bookmark(4)), continued(4, changed)}},
		{"a bookmark that leaves a revision out", "revision 6 is missing", []*stream{from(1, a, b, c, bookmark(7))}},
		{"twice", "comes twice", []*stream{from(1, a, a)}},
		{"twice in one revision that was sent again", "comes twice", []*stream{from(1, a, b, c), continued(4, b, b)}},
		{"again after a later one", "after revision 4", []*stream{from(1, a, b, c, a)}},
		{"again after a reconnect", "after revision 4", []*stream{from(1, a, b, c), continued(4, a)}},
		{"not stored", "is not stored", []*stream{from(1, a, seen(3, watch.Added, "d"))}},
		{"another type", "want ADDED", []*stream{from(1, seen(2, watch.Modified, "a"))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			requireProblem(t, test.problem, checkStreams("sandboxclaims", test.streams, changes))
		})
	}
}
