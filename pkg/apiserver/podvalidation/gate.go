// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podvalidation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/install/dryrunpolicy"
)

const (
	// gateInterval is how often the cluster is asked what the API server may do.
	gateInterval = 10 * time.Second
	// gateTimeout is how long one such question may take.
	gateTimeout = 5 * time.Second
)

// GateOptions are what a Gate works with. All are required.
type GateOptions struct {
	// Pods is what is asked while the gate is open.
	Pods Pods
	// Cluster answers who the API server is and if it may create pods.
	Cluster kubernetes.Interface
	// Policies and Bindings are those of the cluster, as of lately.
	Policies listers.ValidatingAdmissionPolicyLister
	Bindings listers.ValidatingAdmissionPolicyBindingLister
	// Synced report whether those are all that there are.
	Synced []cache.InformerSynced
	Clock  clock.WithTicker
}

// Gate lets the cluster be asked about pods by dry runs only while the cluster holds the
// API server to dry runs. Who may create pods anywhere may run anything anywhere, so that
// right is not used where the policy that bounds it is missing, or says something else:
// then pods are answered with a warning. That does not say why: where the account of the API
// server has a right that nothing bounds is for the operator to know, not for every tenant.
type Gate struct {
	GateOptions
	// self is nil until the cluster has told it, and which policies there are.
	self atomic.Pointer[self]
}

// self is what the cluster says of the API server.
type self struct {
	user string
	// mayCreate: it may create pods, in all namespaces.
	mayCreate bool
}

var _ Pods = (*Gate)(nil)

// NewGate returns a Gate. It is closed until Run has asked the cluster.
func NewGate(options GateOptions) *Gate { return &Gate{GateOptions: options} }

// Pod implements Pods.
func (g *Gate) Pod(ctx context.Context, pod *unstructured.Unstructured) Result {
	if state, _ := g.state(); state != GateOn {
		return Result{Warnings: []string{"the cluster is not asked about its pods"}}
	}
	return g.Pods.Pod(ctx, pod)
}

// GateState is what a Gate is like.
type GateState string

// The states of a Gate.
const (
	// GateOff is closed: the API server may not create pods, as it is where
	// components/dry-runs is not installed.
	GateOff GateState = "off"
	// GateUnguarded is closed: the API server may create pods, and nothing holds it to
	// dry runs.
	GateUnguarded GateState = "unguarded"
	// GateOn is open.
	GateOn GateState = "on"
)

var (
	errUnknownSelf = errors.New("it has not said yet what " + dryRunOwner + " may do")
	errMayNot      = errors.New(dryRunOwner + " may not create pods, not even in a dry run")
)

// state returns GateOn, or another state and the reason for it.
func (g *Gate) state() (GateState, error) {
	self := g.self.Load()
	switch {
	case self == nil:
		return GateOff, errUnknownSelf
	case !self.mayCreate:
		return GateOff, errMayNot
	}
	policy, err := g.Policies.Get(dryrunpolicy.Name)
	if apierrors.IsNotFound(err) {
		policy, err = nil, nil
	}
	var bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	if err == nil {
		bindings, err = g.Bindings.List(labels.Everything())
	}
	if err == nil {
		err = dryrunpolicy.Holds(self.user, policy, bindings)
	}
	if err == nil {
		return GateOn, nil
	}
	return GateUnguarded, fmt.Errorf("%s may create pods, and nothing holds it to dry runs: %w", dryRunOwner, err)
}

// Run asks the cluster until ctx is done, and reports changes. Until it is known which
// policies there are, the gate is off.
func (g *Gate) Run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), g.Synced...) {
		return
	}
	ticker := g.Clock.NewTicker(gateInterval)
	defer ticker.Stop()
	var before GateState
	failing := false
	for {
		err := g.ask(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			klog.ErrorS(err, "Failed to check whether pods may be created in dry runs, keeping the last result")
		}
		failing = err != nil
		if now, why := g.state(); now != before && g.self.Load() != nil {
			tell(now, why)
			before = now
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// ask finds out who the API server is and what it may do.
func (g *Gate) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	who, err := g.Cluster.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking the cluster who this is: %w", err)
	}
	may, err := g.Cluster.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Version: "v1", Resource: "pods"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking the cluster for the right to create pods: %w", err)
	}
	g.self.Store(&self{user: who.Status.UserInfo.Username, mayCreate: may.Status.Allowed})
	return nil
}

func tell(state GateState, why error) {
	observeGate(state)
	switch state {
	case GateOn:
		klog.InfoS("Validating pods of sets and templates in the cluster, by dry runs")
	case GateOff:
		klog.InfoS("Not validating pods of sets and templates in the cluster", "reason", why.Error())
	case GateUnguarded:
		klog.ErrorS(why, "Not validating pods of sets and templates in the cluster",
			"remedy", "apply components/dry-runs as a whole, or remove the right to create pods")
	}
}
