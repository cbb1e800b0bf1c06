// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/allocator/plan"
	"github.com/sandlot-io/sandlot/pkg/claims"
)

const (
	// maxAhead is how long before the server saw a claim others can have asked for it or seen
	// it. A time that is earlier is a mistake, or a lie.
	maxAhead = 5 * time.Minute
	// maxStartup is how long the start of a sandbox can have taken: what became ready later
	// did so for other reasons, such as that a container ran anew.
	maxStartup = time.Hour
)

// given is of which series a sandbox is that a claim was given.
type given struct {
	source
	launch, condition string
}

// observeGiven counts the sandboxes that a claim was given, by where they are from.
func observeGiven(m *measured, p *plan.Plan, sets claims.Sets, now time.Time) {
	if len(p.Bound)+len(p.Made) == 0 {
		return
	}
	numbers := map[given]float64{}
	for _, sb := range p.Bound {
		g := given{source{claims.TemplateInFigures(sb), poolInFigures(sb, sets)}, v1alpha1.AgentLaunchWarm, podNotReady}
		if meta.IsStatusConditionTrue(sb.Status.Conditions, v1alpha1.SandboxConditionReady) {
			g.condition = podReady
		}
		numbers[g]++
	}
	for _, sb := range p.Made {
		numbers[given{source{claims.TemplateInFigures(sb), noWarmPool}, v1alpha1.AgentLaunchCold, podNotReady}]++
	}
	by := claims.CreatedBy(p.Claim)
	for g, n := range numbers {
		m.count(types.NamespacedName{Namespace: p.Claim.Namespace, Name: g.name()}, now, func(place types.NamespacedName) {
			s := sourceAt(place)
			agentClaims.WithLabelValues(place.Namespace, s.template, g.launch, s.pool, g.condition, by).Add(n)
		})
	}
}

// poolInFigures is the pool that a sandbox was taken from, if that is one that exists.
func poolInFigures(sb *v1alpha1.Sandbox, sets claims.Sets) string {
	if pool := sb.Labels[v1alpha1.LabelSandboxPool]; pool != "" && sets.Set(sb.Namespace, pool) != nil {
		return pool
	}
	return claims.OtherFigures
}

// observeFirstReady measures how long a claim took to become Ready, and its sandbox.
func observeFirstReady(m *measured, p *plan.Plan, now time.Time) {
	launch, template := claims.UnknownFigure, claims.UnknownTemplate
	sb := readySandbox(p)
	if sb != nil {
		launch, template = claims.LaunchType(sb), claims.TemplateInFigures(sb)
	}
	annotations := p.Claim.Annotations
	seen, ok := timeOf(annotations[v1alpha1.AgentAnnotationFirstObserved])
	if !ok {
		seen = now.Add(-p.Took)
	}
	m.count(types.NamespacedName{Namespace: p.Claim.Namespace, Name: template}, now, func(place types.NamespacedName) {
		since := func(histogram *metrics.HistogramVec, start time.Time) {
			if took := now.Sub(start); took >= 0 {
				histogram.WithLabelValues(launch, place.Name).Observe(milliseconds(took))
			}
		}
		since(claimControllerStartup, seen)
		for key, histogram := range map[string]*metrics.HistogramVec{
			v1alpha1.AgentAnnotationClientRequested: clientClaimStartup, v1alpha1.AgentAnnotationWebhookObserved: claimStartup,
		} {
			if start, ok := timeOf(annotations[key]); ok && start.After(seen.Add(-maxAhead)) {
				since(histogram, start)
			}
		}
		if took, ok := startup(sb); ok {
			agentCreation.WithLabelValues(place.Namespace, launch, place.Name).Observe(milliseconds(took))
		}
	})
}

// readySandbox is the sandbox with which a claim of one became Ready; nil if it is not of the
// plan.
func readySandbox(p *plan.Plan) *v1alpha1.Sandbox {
	for _, all := range [][]*v1alpha1.Sandbox{p.Counted, p.Bound, p.Made} {
		if len(all) > 0 {
			return all[0]
		}
	}
	return nil
}

// startup is how long a sandbox took from its creation until it was ready, if that is known.
func startup(sb *v1alpha1.Sandbox) (time.Duration, bool) {
	if sb == nil || sb.Status.RecycledCount > 0 {
		return 0, false
	}
	ready := meta.FindStatusCondition(sb.Status.Conditions, v1alpha1.SandboxConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return 0, false
	}
	took := ready.LastTransitionTime.Sub(sb.CreationTimestamp.Time)
	return took, took >= 0 && took <= maxStartup
}

// maxTime is longer than any time in RFC 3339.
const maxTime = 64

func timeOf(value string) (time.Time, bool) {
	if value == "" || len(value) > maxTime {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	return t, err == nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
