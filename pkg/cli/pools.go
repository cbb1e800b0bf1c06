// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

// pool is how a SandboxSet stands.
type pool struct {
	set *v1alpha1.SandboxSet
	// claims are how many claims ask for its sandboxes, waiting those of them that lack
	// some, and claimed the sandboxes of the set that are held, with or without a claim.
	claims, waiting, claimed int
}

// poolsOf counts what claims want of sets. claimed are the claimed sandboxes by the key of
// the set that made them. A claim by template counts for every set of the template.
func poolsOf(sets []*v1alpha1.SandboxSet, claims []*v1alpha1.SandboxClaim, claimed map[types.NamespacedName]int) []pool {
	pools := make([]pool, 0, len(sets))
	byName, byTemplate := map[types.NamespacedName]int{}, map[types.NamespacedName][]int{}
	for i, set := range sets {
		key := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
		pools = append(pools, pool{set: set, claimed: claimed[key]})
		byName[key] = i
		template := types.NamespacedName{Namespace: set.Namespace, Name: templateOf(set)}
		byTemplate[template] = append(byTemplate[template], i)
	}
	for _, claim := range claims {
		key := types.NamespacedName{Namespace: claim.Namespace, Name: poolOf(claim)}
		serving := byTemplate[key]
		if i, ok := byName[key]; ok && claim.Spec.TemplateName != "" {
			serving = []int{i}
		}
		for _, i := range serving {
			pools[i].claims++
			if stateOf(claim) == stateWaiting {
				pools[i].waiting++
			}
		}
	}
	return pools
}

// templateOf is the name of the template whose set it is: its own where it has none.
func templateOf(set *v1alpha1.SandboxSet) string {
	if ref := set.Spec.TemplateRef; ref != nil {
		return ref.Name
	}
	return set.Name
}

// trouble is what keeps a pool from having sandboxes, or nothing.
func (p pool) trouble() (reason, message string) {
	conditions := p.set.Status.Conditions
	for _, kind := range []string{v1alpha1.SetConditionTemplateResolved, v1alpha1.SetConditionTemplateAccepted} {
		if meta.IsStatusConditionFalse(conditions, kind) {
			return text(meta.FindStatusCondition(conditions, kind))
		}
	}
	var unavailable *metav1.Condition
	if meta.IsStatusConditionFalse(conditions, v1alpha1.SetConditionAvailable) {
		unavailable = meta.FindStatusCondition(conditions, v1alpha1.SetConditionAvailable)
	}
	// It says why only where sandboxes cannot start.
	if unavailable == nil || unavailable.Reason != v1alpha1.ReasonSandboxesCannotStart {
		if meta.IsStatusConditionTrue(conditions, v1alpha1.SetConditionReplicaFailure) {
			return text(meta.FindStatusCondition(conditions, v1alpha1.SetConditionReplicaFailure))
		}
	}
	return text(unavailable)
}

// text is what a condition says, or nothing if there is none.
func text(condition *metav1.Condition) (reason, message string) {
	if condition == nil {
		return "", ""
	}
	return condition.Reason, condition.Message
}

// poolTable shows pools in the order of the server. counted says whether the claimed
// sandboxes could be counted.
func poolTable(pools []pool, counted, namespaces bool) *metav1.Table {
	columns := []column{{name: "Pool"}, {name: "Wanted"}, {name: "Available"}, {name: "Starting"}, {name: "Waiting"}, {name: "Claims"}, {name: "Claimed"},
		{name: "Reason"}, {name: "Message"}}
	if namespaces {
		columns = append([]column{{name: "Namespace"}}, columns...)
	}
	var rows [][]string
	for _, p := range pools {
		status := p.set.Status
		held := "<unknown>"
		if counted {
			held = strconv.Itoa(p.claimed)
		}
		reason, message := p.trouble()
		cells := []string{
			p.set.Name, number(ptr.Deref(p.set.Spec.Replicas, 0)), number(status.AvailableReplicas), number(max(status.Replicas-status.AvailableReplicas, 0)),
			strconv.Itoa(p.waiting), strconv.Itoa(p.claims), held, reason, message,
		}
		if namespaces {
			cells = append([]string{p.set.Namespace}, cells...)
		}
		rows = append(rows, cells)
	}
	return newTable(columns, rows)
}

func number(n int32) string { return strconv.Itoa(int(n)) }
