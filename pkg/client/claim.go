// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/scheme"
	typed "github.com/sandlot-io/sandlot/pkg/client/clientset/versioned/typed/sandbox/v1alpha1"
)

// tryTimeout is how long one create may take: a little longer than kube-apiserver lets any
// request take.
const tryTimeout = 65 * time.Second

// ClaimAndWait creates a claim and returns it when it is Completed and has all that it
// asked for. Most claims are when the create returns. For the others it watches, which
// requires the rights to get and watch sandboxclaims.
//
// The claim needs a namespace. One without a name gets one here, made of generateName,
// before the first try. Each try is by the same name, so at most one of them binds
// sandboxes, however many answers are lost. The claim that is handed in is not changed.
//
// Errors:
//   - *IncompleteError: the claim ended with less. It is returned beside the error.
//   - *GivenUpError: the context ended, or the server gave no clear answer for
//     Options.RetryFor. It says what is left, and wraps the error of the context.
//   - IsShortage, IsTooManyWaiting: nothing is stored. RetryAfter of the second is when to come again.
//   - apierrors.IsAlreadyExists: there is a claim of this name that another call has made.
//   - apierrors.IsNotFound: the claim was deleted while it was waited for.
//   - others are those of the create, such as apierrors.IsInvalid.
func ClaimAndWait(ctx context.Context, agents typed.AgentsV1alpha1Interface, claim *v1alpha1.SandboxClaim, options Options) (*v1alpha1.SandboxClaim, error) {
	c, err := newCall(agents, claim, options)
	if err != nil {
		return nil, err
	}
	got, err := c.create(ctx)
	if err == nil {
		got, err = await(ctx, c.claims, got, c.options.RetryFor)
	}
	if got, err = c.end(ctx, got, err); err != nil {
		return got, err
	}
	return got, incomplete(got)
}

// Create creates a claim as ClaimAndWait does, and returns what the server answered: the
// claim may still wait. Its errors are those of ClaimAndWait, except for *IncompleteError.
func Create(ctx context.Context, agents typed.AgentsV1alpha1Interface, claim *v1alpha1.SandboxClaim, options Options) (*v1alpha1.SandboxClaim, error) {
	c, err := newCall(agents, claim, options)
	if err != nil {
		return nil, err
	}
	got, err := c.create(ctx)
	return c.end(ctx, got, err)
}

func newCall(agents typed.AgentsV1alpha1Interface, claim *v1alpha1.SandboxClaim, options Options) (*call, error) {
	if claim.Namespace == "" {
		return nil, errors.New("the claim has no namespace")
	}
	options = options.withDefaults()
	return &call{agents: agents, claims: agents.SandboxClaims(claim.Namespace), options: options, want: withNameAndKey(claim, options.Key)}, nil
}

// end gives up if err is an overError, which means that the time is over.
func (c *call) end(ctx context.Context, got *v1alpha1.SandboxClaim, err error) (*v1alpha1.SandboxClaim, error) {
	var noTime *overError
	if errors.As(err, &noTime) {
		return c.giveUp(ctx, got, noTime.cause)
	}
	return got, err
}

// withNameAndKey returns a copy of a claim with a name and the key.
func withNameAndKey(claim *v1alpha1.SandboxClaim, key string) *v1alpha1.SandboxClaim {
	claim = claim.DeepCopy()
	if claim.Name == "" {
		claim.Name = nameFor(claim.GenerateName)
	}
	claim.GenerateName = ""
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, AnnotationKey, key)
	return claim
}

// call is one call of ClaimAndWait or Create.
type call struct {
	agents  typed.AgentsV1alpha1Interface
	claims  typed.SandboxClaimInterface
	options Options
	want    *v1alpha1.SandboxClaim
	// mayBeStored is true if the claim may be stored although no answer has said so.
	mayBeStored bool
}

// create creates the claim, and repeats that until an answer says that the claim is stored or why not.
func (c *call) create(ctx context.Context) (*v1alpha1.SandboxClaim, error) {
	p := newPatience(c.options.RetryFor)
	for {
		claim, err := c.try(ctx)
		if err == nil {
			return claim, nil
		}
		if ctx.Err() != nil {
			c.mayBeStored = true
			return nil, over(ctx, err)
		}
		switch judge(err) {
		case final:
			if !apierrors.IsConflict(err) { // with a quota that changes, as others claim too
				return nil, err
			}
		case short:
			if !c.options.RetryShortage {
				return nil, err
			}
			p.answered()
		case unclear:
			c.mayBeStored = true
		}
		if err := p.again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// try creates the claim once. A refusal is believed only if the claim is not there from a
// try before.
func (c *call) try(ctx context.Context) (*v1alpha1.SandboxClaim, error) {
	claim, err := c.createOnce(ctx)
	if err == nil || ctx.Err() != nil {
		return claim, err
	}
	exists := apierrors.IsAlreadyExists(err)
	if verdict := judge(err); !exists && (!c.mayBeStored || verdict == unclear || verdict == notDone) {
		return nil, err
	}
	there, getErr := c.claims.Get(ctx, c.want.Name, metav1.GetOptions{})
	switch {
	case getErr == nil && c.made(there):
		return there, nil
	case getErr == nil && exists:
		return nil, fmt.Errorf("%w, and it is not the claim of this call: its annotation %s, its user or what it asks for differ", err, AnnotationKey)
	case getErr == nil, apierrors.IsNotFound(getErr):
		return nil, err
	}
	return nil, getErr
}

// made reports whether a claim is the one that this call wants, made by a try of it, or by
// an earlier call with the same key. The key alone is not enough: every user who may read
// claims knows it.
func (c *call) made(there *v1alpha1.SandboxClaim) bool {
	return there.Annotations[AnnotationKey] == c.options.Key &&
		(c.options.User == "" || there.Annotations[v1alpha1.AnnotationClaimedBy] == c.options.User) &&
		sameSpec(there, c.want)
}

// createOnce sends the claim once. client-go would send it up to ten times more, for as
// long as the answer has a Retry-After, unless that is switched off, which its typed
// clients cannot. A fake has no RESTClient.
func (c *call) createOnce(ctx context.Context) (*v1alpha1.SandboxClaim, error) {
	if c.options.OnGiveUp == GiveUpGiveBack {
		var end context.CancelFunc
		ctx, end = outlast(ctx, c.options.GiveUpTimeout)
		defer end()
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	client, ok := c.agents.RESTClient().(*rest.RESTClient)
	if !ok || client == nil {
		return c.claims.Create(ctx, c.want, metav1.CreateOptions{})
	}
	created := &v1alpha1.SandboxClaim{}
	request := client.Post().Namespace(c.want.Namespace).Resource("sandboxclaims").
		VersionedParams(&metav1.CreateOptions{}, scheme.ParameterCodec).
		MaxRetries(0).Body(c.want)
	var answered map[string]string
	if c.options.AccessTokens != nil {
		request.Param(v1alpha1.RuntimeAccessParameter, "true")
		ctx = context.WithValue(ctx, answeredKey{}, &answered)
	}
	if err := request.Do(ctx).Into(created); err != nil {
		return nil, err
	}
	maps.Copy(c.options.AccessTokens, answered)
	return created, nil
}

// outlast returns a context that ends some time after another. A create that is cut off may
// be carried out after a read has found no claim; its answer says what is to be given back.
func outlast(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		late := time.NewTimer(by)
		defer late.Stop()
		select {
		case <-late.C:
			cancel()
		case <-longer.Done():
		}
	})
	return longer, func() { stop(); cancel() }
}
