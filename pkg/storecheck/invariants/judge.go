// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

// overdue is for how long a claim may be past its time before that is reported. Servers
// that do not run serve no claims.
const overdue = 10 * time.Minute

// What to do about what the programs do not write.
const (
	restore = "restore the store from a backup of before, or see to these objects by hand; and report it as a bug, with this output"
	wait    = "nothing, if it is gone a minute later; else see whether the garbage collector of the cluster works"
)

// judge is the judgement of a state.
type judge struct {
	*State
	now    time.Time
	report func(findings.Finding)
	// claimsByUID and sandboxesByKey are the objects of the state.
	claimsByUID    map[types.UID]*claim
	sandboxesByKey map[types.NamespacedName]*sandbox
	// holds are the sandboxes that name a claim, by its UID.
	holds map[types.UID][]*sandbox
	// listedBy are the claims that list a sandbox which is there, by the sandbox.
	listedBy map[*sandbox]*claim
}

// Judge reports what does not hold in the state. now is only for claims that are past
// their time.
func (s *State) Judge(now time.Time, report func(findings.Finding)) {
	j := &judge{
		State: s, now: now, report: report,
		claimsByUID:    make(map[types.UID]*claim, len(s.claims)),
		sandboxesByKey: make(map[types.NamespacedName]*sandbox, len(s.sandboxes)),
		holds:          map[types.UID][]*sandbox{},
		listedBy:       map[*sandbox]*claim{},
	}
	for _, twins := range s.twins {
		j.breach("UniqueUID", fmt.Sprintf("%s and %s have one UID", twins[0], twins[1]), twins[0], twins[1])
	}
	for i := range s.claims {
		j.claimsByUID[s.claims[i].uid] = &s.claims[i]
	}
	for i := range s.sandboxes {
		sb := &s.sandboxes[i]
		j.sandboxesByKey[sb.key] = sb
		if sb.bound() {
			j.holds[sb.claim.uid] = append(j.holds[sb.claim.uid], sb)
		}
	}
	for i := range s.sandboxes {
		j.sandbox(&s.sandboxes[i])
	}
	for i := range s.claims {
		j.claim(&s.claims[i])
	}
}

func (j *judge) breach(check, message string, objects ...string) {
	j.report(findings.Finding{Level: findings.Error, Check: check, Objects: objects, Message: message, Action: restore})
}

func (j *judge) warn(check, message, action string, objects ...string) {
	j.report(findings.Finding{Level: findings.Warning, Check: check, Objects: objects, Message: message, Action: action})
}

// sandbox judges a sandbox by what it says of itself, and by whether what it names is there.
func (j *judge) sandbox(sb *sandbox) {
	var told bool
	if sb.claim.uid != "" {
		told = j.bound(sb)
	} else {
		j.unbound(sb)
	}
	if !told && !j.Partial && sb.controller.UID != "" && j.owners[sb.controller.UID] == "" && !sb.deleting {
		j.warn("OwnerGone", fmt.Sprintf("%s belongs to %s %s (%s), which is gone", sb, sb.controller.Kind, sb.controller.Name, sb.controller.UID), wait, sb.String())
	}
}

// bound judges a sandbox that names a claim. It reports whether it told that the claim is
// gone or another one, which says what there is to say of the owner.
func (j *judge) bound(sb *sandbox) (told bool) {
	name := sb.String()
	switch {
	case sb.pooled:
		j.breach("BoundInPool", fmt.Sprintf("%s is bound to claim %s (%s), and is in the pool of SandboxSet %s, which could hand it out again",
			name, sb.claim.name, sb.claim.uid, sb.controller.Name), name)
	case !sb.locked:
		j.breach("BoundWithoutLock", fmt.Sprintf("%s is bound to claim %s (%s), and is not locked", name, sb.claim.name, sb.claim.uid), name)
	}
	holder := j.claimsByUID[sb.claim.uid]
	switch {
	case holder != nil && (holder.key.Namespace != sb.key.Namespace || holder.key.Name != sb.claim.name):
		j.breach("BoundToOther", fmt.Sprintf("%s says that it is bound to claim %s of its namespace, and has the UID of %s", name, sb.claim.name, holder), name, holder.String())
	case !j.Partial && holder == nil && sb.starting && !sb.reserved && !sb.deleting:
		j.warn("ClaimGone", fmt.Sprintf("%s is starting for claim %s (%s), which is gone", name, sb.claim.name, sb.claim.uid), wait, name)
	default:
		return false
	}
	return true
}

// unbound judges a sandbox that names no claim.
func (j *judge) unbound(sb *sandbox) {
	name := sb.String()
	unexplained := sb.locked && !sb.scalesDown
	switch {
	case unexplained && sb.pooled:
		j.breach("LockedWithoutClaim", fmt.Sprintf("%s is locked in its pool and bound to no claim, so none can have it", name), name)
	case unexplained && !sb.due && !sb.deleting:
		j.warn("LockedWithoutClaim", fmt.Sprintf("%s is locked, bound to no claim, and is not to be shut down: a claim has released it, and its shutdownTime was cleared since", name),
			"delete it, if it is not in use", name)
	case sb.starting:
		j.breach("StartingWithoutClaim", fmt.Sprintf("%s is starting for a claim and names none", name), name)
	}
}

// claim judges a claim against the sandboxes that it lists, and those that name it.
func (j *judge) claim(c *claim) {
	name := c.String()
	j.counts(c)
	names := make(map[string]types.UID, len(c.listed))
	for _, entry := range c.listed {
		if _, twice := names[entry.Name]; twice {
			j.breach("ListedTwice", fmt.Sprintf("%s lists Sandbox %s twice", name, entry.Name), name)
		}
		names[entry.Name] = entry.UID
		j.listed(c, entry.Name, entry.UID)
	}
	live := j.held(c, names)
	if live > c.replicas {
		j.breach("MoreThanAsked", fmt.Sprintf("%s asks for %d, and %d sandboxes are bound to it", name, c.replicas, live), name)
	}
	if !c.completed && !c.deleting && j.now.Sub(c.deadline) > overdue {
		j.warn("Overdue", fmt.Sprintf("%s should have ended at %s, and is still Claiming", name, c.deadline.UTC().Format(time.RFC3339)),
			"see that an API server runs on this store: it ends such claims as soon as it does", name)
	}
}

// held judges the sandboxes that name a claim, which lists some by name and UID, and returns
// how many they are.
func (j *judge) held(c *claim, names map[string]types.UID) (live int) {
	name := c.String()
	for _, sb := range j.holds[c.uid] {
		if sb.key.Namespace != c.key.Namespace || sb.deleting {
			continue
		}
		live++
		uid, listed := names[sb.key.Name]
		listed = listed && (uid == "" || uid == sb.uid)
		switch {
		case sb.starting && listed:
			j.breach("CountedAndStarting", fmt.Sprintf("%s counts %s, which is still starting for it", name, sb), name, sb.String())
		case sb.starting && c.completed && !c.deleting:
			j.breach("CompletedAndStarting", fmt.Sprintf("%s is Completed, and %s is starting for it, which nothing completes", name, sb), name, sb.String())
		case !sb.starting && !listed:
			j.breach("BoundNotListed", fmt.Sprintf("%s names %s, which does not list it", sb, name), name, sb.String())
		}
	}
	return live
}

// counts judges the numbers of a claim.
func (j *judge) counts(c *claim) {
	name := c.String()
	switch {
	case c.claimed < len(c.listed):
		j.breach("CountOfList", fmt.Sprintf("%s says that it has %d sandboxes, and lists %d", name, c.claimed, len(c.listed)), name)
	case c.claimed > len(c.listed):
		// A sandbox that went back to its pool and came to the same claim is counted twice
		// and listed once.
		j.warn("CountOfList", fmt.Sprintf("%s says that it has %d sandboxes, and lists %d", name, c.claimed, len(c.listed)),
			"nothing, if its sandboxes are recycled, or its status was written by hand; else report it as a bug", name)
	}
	switch {
	case c.claimed > c.replicas:
		j.breach("MoreThanAsked", fmt.Sprintf("%s asks for %d, and says that it has %d sandboxes", name, c.replicas, c.claimed), name)
	case c.allOrNothing && c.claimed != 0 && c.claimed != c.replicas:
		j.breach("AllOrNothing", fmt.Sprintf("%s is to have all of %d or nothing, and has %d", name, c.replicas, c.claimed), name)
	}
}

// listed judges a sandbox that a claim lists. One that is gone was deleted since; its name
// may be another's by now. One that was recycled may be any claim's.
func (j *judge) listed(c *claim, sandboxName string, uid types.UID) {
	sb := j.sandboxesByKey[types.NamespacedName{Namespace: c.key.Namespace, Name: sandboxName}]
	if sb == nil || uid != "" && uid != sb.uid || sb.recycled {
		return
	}
	if other := j.listedBy[sb]; other != nil && other != c {
		j.breach("ListedByTwo", fmt.Sprintf("%s is listed by %s and by %s", sb, other, c), sb.String(), other.String(), c.String())
	}
	j.listedBy[sb] = c
	if sb.claim.uid == c.uid {
		return
	}
	holder := "no claim"
	if sb.claim.uid != "" {
		holder = fmt.Sprintf("claim %s (%s)", sb.claim.name, sb.claim.uid)
	}
	message := fmt.Sprintf("%s (%s) lists %s, which names %s", c, c.uid, sb, holder)
	if uid == "" {
		j.warn("ListedNotBound", message, "nothing, if a sandbox of that name was deleted and another made since: the entry is of a version that listed no UIDs", c.String(), sb.String())
		return
	}
	j.breach("ListedNotBound", message, c.String(), sb.String())
}
