// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/queue"
	"github.com/sandlot-io/sandlot/pkg/claims"
	"github.com/sandlot-io/sandlot/pkg/poolindex"
)

// What it costs a claim to find its pools and to take a sandbox from the best of
// them, among a thousand sets.
func BenchmarkFindPoolsAndTake(b *testing.B) {
	for name, claim := range map[string]v1alpha1.SandboxClaimSpec{
		"one set":    {TemplateName: "only"},
		"three sets": {SandboxTemplateRef: &v1alpha1.SandboxClaimTemplateRef{Name: "py"}},
	} {
		b.Run(name, func(b *testing.B) {
			sets := []*v1alpha1.SandboxSet{setOf("only", ""), setOf("a", "py"), setOf("b", "py"), setOf("c", "py", patched)}
			for i := range 1000 {
				sets = append(sets, setOf(fmt.Sprint("other-", i), fmt.Sprint("template-", i%300)))
			}
			var c SetCache
			c.Replace(sets, 9)
			index := poolindex.New()
			for i := range 3000 {
				index.Upsert(poolindex.Candidate{Pool: poolindex.PoolOf(sets[i%4]), Name: fmt.Sprint("sb-", i), ResourceVersion: uint64(i + 1)})
			}
			q := queue.New(index, clock.RealClock{})
			asking := &v1alpha1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: claim}
			b.ReportAllocs()
			for b.Loop() {
				e := claims.EligiblePools(asking, &c)
				taken := q.TakeFree(SourcesOf(&e), 1, false)
				if len(taken) != 1 {
					b.Fatal("the pools are empty")
				}
				q.Release(taken)
			}
		})
	}
}
