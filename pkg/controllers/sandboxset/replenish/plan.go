// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package replenish

import (
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

// observation is all that a plan is made from.
type observation struct {
	set *v1alpha1.SandboxSet
	// goal is what the pool should consist of.
	goal
	// said is what the API said of the pods of the goal's revision, or nil; cluster is
	// whether there is a cluster, which it could ask and which runs the pods.
	said    *answer
	cluster bool
	// sandboxes are those that the set controls, as the cache shows them.
	sandboxes []*v1alpha1.Sandbox
	// creates are sandboxes that this controller has made and whose arrival in the
	// cache it has not noticed yet, with their revisions. Some may already be among
	// sandboxes: the cache is filled before its events are handled.
	creates map[types.UID]string
	// deletes are sandboxes that this controller has deleted, whose end it has not
	// noticed yet. They are as good as gone.
	deletes sets.Set[types.UID]
	// taken is how many claims had taken when sandboxes were looked up, see bursts.
	taken int
	// ahead is how far the pool may differ from replicas because claims wait.
	ahead ahead
	now   time.Time
}

// maxUnseen is how many sandboxes of a set may be there in a cluster that whoever runs
// pods has not looked at yet. It takes those of all sets in turn, so with more of them
// a small set, or a claim that has one made, would wait for all of a large set; and a
// cluster that takes pods slowly would have none the earlier. It is enough to keep
// it busy.
const maxUnseen = 128

// plan is what to do.
type plan struct {
	create int
	// more is whether more are to be created when some of those are looked at.
	more   bool
	remove []*v1alpha1.Sandbox
	// rolling: what is removed beside garbage is of an older revision, not surplus.
	rolling bool
}

// census is a pool, sorted by what its sandboxes are good for.
type census struct {
	// available can be claimed now; creating will be. Together with pending (own
	// creates that the cache does not show) they are the unused sandboxes.
	available, creating []*v1alpha1.Sandbox
	pending             int
	// unseen are those among creating that nobody has looked at yet.
	unseen int
	// updated... are those of the current revision.
	updatedAvailable, updatedCreating, updatedPending int
	// garbage will never be claimed.
	garbage []*v1alpha1.Sandbox
	// outcome is how those of the current revision fare.
	outcome outcome
}

func (c *census) unused() int  { return len(c.available) + len(c.creating) + c.pending }
func (c *census) updated() int { return c.updatedAvailable + c.updatedCreating + c.updatedPending }

// use is what one sandbox of a pool is good for.
type use int

const (
	useNone use = iota // not ours to count or to delete
	useCreating
	useAvailable
	useGarbage
)

// useOf follows the derived state, except:
//   - A locked sandbox is somebody's who has not taken it out of the pool yet. It
//     does not count, so that the pool is full without it, and it is left alone.
//     The lock of a scale-down by OpenKruise Agents that was interrupted is
//     nobody's.
//   - A paused sandbox was put aside by somebody: the set never pauses one. It does
//     not count, so that the pool is full without it, and is left alone, also by a
//     scale-down, as what it keeps may be wanted. It counts again once it is
//     resumed, and goes with the set.
//   - A sandbox without an address cannot be handed out, whatever its conditions.
//   - A failed sandbox that is kept for debugging is left alone.
func useOf(sandbox *v1alpha1.Sandbox, now time.Time) use {
	if sandbox.DeletionTimestamp != nil {
		return useNone
	}
	if sandbox.Annotations[v1alpha1.AnnotationOwner] == v1alpha1.OwnerScaleDown {
		return useGarbage
	}
	if claims.Available(sandbox, now) {
		return useAvailable
	}
	state, _ := v1alpha1.StateOf(sandbox, now)
	locked := sandbox.Annotations[v1alpha1.AnnotationLock] != ""
	switch {
	case state == v1alpha1.StateDead:
		if sandbox.Labels[v1alpha1.LabelReservedFailedSandbox] == "true" {
			return useNone
		}
		return useGarbage
	case locked || sandbox.Spec.Paused:
		return useNone
	default:
		return useCreating
	}
}

func (o *observation) updated(sandbox *v1alpha1.Sandbox) bool {
	return sandbox.Labels[v1alpha1.LabelTemplateHash] == o.revision
}

func (o *observation) census() census {
	c := census{pending: len(o.creates)}
	for _, revision := range o.creates {
		if revision == o.revision {
			c.updatedPending++
		}
	}
	for _, sandbox := range o.sandboxes {
		if revision, ok := o.creates[sandbox.UID]; ok {
			c.pending--
			if revision == o.revision {
				c.updatedPending--
			}
		}
		if o.deletes.Has(sandbox.UID) {
			continue
		}
		switch useOf(sandbox, o.now) {
		case useAvailable:
			c.available = append(c.available, sandbox)
			if o.updated(sandbox) {
				c.updatedAvailable++
				c.outcome.works(sandbox)
			}
		case useCreating:
			c.creating = append(c.creating, sandbox)
			if sandbox.Status.ObservedGeneration == 0 {
				c.unseen++
			}
			if o.updated(sandbox) {
				c.updatedCreating++
			}
		case useGarbage:
			c.garbage = append(c.garbage, sandbox)
			if o.updated(sandbox) {
				c.outcome.garbage(sandbox)
			}
		}
	}
	return c
}

// plan decides.
//
//   - Too few, with those that claims wait for: make the missing ones, but no more at a time than
//     scaleStrategy.maxUnavailable lets be unavailable, and no more than are looked at (see
//     maxUnseen).
//   - Too many: remove the surplus, the least useful first (see leastUseful). What
//     was made for claims that waited is left alone for a while (see aheads).
//   - Older revision: replace (see outdated).
//   - No sandbox of the goal can be made: make none, and keep the older ones.
//
// Nothing useful is removed while own creates are still to show up in the cache:
// one of them may have been claimed meanwhile, and then it is not one too many.
//
// Example: replicas 10, updateStrategy 20%, ten available sandboxes of an older
// revision. The first plan removes two; the next makes two; nothing happens until
// both are available; then two more are removed. With a template that never gets
// ready it stays at eight old ones that work.
func (o *observation) plan(c *census) (plan, error) {
	p := plan{remove: c.garbage}
	missing := o.target() - c.unused()
	if missing > 0 {
		room, err := o.room(c)
		if err != nil {
			return plan{}, err
		}
		p.create = min(missing, room)
		if unseen := max(maxUnseen-c.unseen-c.pending, 0); o.cluster && unseen < p.create {
			p.create, p.more = unseen, true
		}
	}
	if !o.makes() {
		p.create = 0
	}
	if c.pending > 0 {
		return p, nil
	}
	if surplus := c.unused() - o.replicas() - o.ahead.spared; surplus > 0 {
		p.remove = append(p.remove, o.leastUseful(c, surplus)...)
		return p, nil
	}
	outdated, err := o.outdated(c)
	if err != nil {
		return plan{}, err
	}
	p.remove, p.rolling = append(p.remove, outdated...), len(outdated) > 0
	return p, nil
}

func (o *observation) replicas() int {
	if o.set.Spec.Replicas == nil {
		return 0
	}
	return int(max(*o.set.Spec.Replicas, 0))
}

// target is how many unused sandboxes there should be now.
func (o *observation) target() int { return o.replicas() + o.ahead.wanted }

// room is how many sandboxes may be created now.
func (o *observation) room(c *census) (int, error) {
	limit := o.set.Spec.ScaleStrategy.MaxUnavailable
	if limit == nil {
		return math.MaxInt, nil
	}
	maxUnavailable, err := scaled(limit, o.target())
	if err != nil {
		return 0, fmt.Errorf("spec.scaleStrategy.maxUnavailable: %w", err)
	}
	return max(maxUnavailable-len(c.creating)-c.pending, 0), nil
}

// scaled resolves a number or a percentage of replicas, rounded up.
func scaled(value *intstr.IntOrString, replicas int) (int, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(value, replicas, true)
	if err != nil {
		return 0, err
	}
	return max(n, 0), nil
}
