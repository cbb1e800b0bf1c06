// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
)

// reconciler does the work for all authorities. A request is the name of one.
type reconciler struct {
	objects     *objects
	recorder    events.EventRecorder
	clock       clock.PassiveClock
	options     Options
	authorities map[string]authority
	warned      map[string]time.Time // by authority: when a restart was last asked for
}

var _ reconcile.Reconciler = (*reconciler)(nil)

// Reconcile brings one authority to what it should be now. The order of the steps
// is what keeps calls from failing (see the package). Each write is refused if
// another client wrote meanwhile, so a leader that does not yet know that it is none
// any more does no harm.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	a, ok := r.authorities[req.Name]
	if !ok {
		return reconcile.Result{}, nil
	}
	rest, err := r.reconcile(secrets.WithoutBodies(ctx), a)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).V(2).Info("Write conflict, retrying", "authority", a.name, "reason", err.Error())
		return reconcile.Result{RequeueAfter: secrets.RetryConflict}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("certificates of %s: %w", a.name, err)
	}
	return reconcile.Result{RequeueAfter: rest}, nil
}

// found is what there is of an authority.
type found struct {
	secret   *corev1.Secret // of the signer
	signer   signer
	targets  []loadedTarget
	services []apiService
	// oldestPod is when the oldest Pod was made that must be made anew to see a
	// bundle, or zero.
	oldestPod time.Time
}

func (o *objects) find(ctx context.Context, a authority) (*found, error) {
	var f found
	var err error
	if f.secret, f.signer, err = o.loadSigner(ctx, a); err != nil {
		return nil, err
	}
	if f.targets, err = o.loadTargets(ctx, a); err != nil {
		return nil, err
	}
	if f.services, err = o.loadAPIServices(ctx, a); err != nil {
		return nil, err
	}
	if f.oldestPod, err = o.oldestPod(ctx, a); err != nil {
		return nil, err
	}
	return &f, nil
}

// reconcile returns how long it may rest.
func (r *reconciler) reconcile(ctx context.Context, a authority) (time.Duration, error) {
	f, err := r.objects.find(ctx, a)
	if err != nil {
		return 0, err
	}
	now := r.clock.Now()
	ok := r.settled(now, f.oldestPod)
	s, err := r.advance(ctx, a, f.secret, f.signer, ok, now)
	if err != nil {
		return 0, err
	}
	bundle, err := r.objects.ensureBundle(ctx, a, s, f, now)
	if err != nil {
		return 0, err
	}
	published, err := r.objects.publish(ctx, a, f.services, bundle.pem)
	if err != nil {
		return 0, err
	}
	times, err := r.ensureTargets(ctx, f.targets, bundle, s.current, ok(s.published), now)
	if err != nil {
		return 0, err
	}
	if published {
		if s, err = r.notePublished(ctx, f.secret, s); err != nil {
			return 0, err
		}
	}
	observe(a.signer, s.current.cert)
	// Without Pods that must see it, it waits for an APIService, which no restart brings.
	if waits := a.restarts && s.next != nil && !s.nextPublished.IsZero(); waits && now.After(s.nextPublished.Add(r.options.Overlap)) && !ok(s.nextPublished) {
		r.askForRestart(ctx, a, f.secret, now)
	}
	return secrets.Rest(now, append(times, r.times(s, bundle)...)...), nil
}

// times returns when something is due about a signer and its bundle.
func (r *reconciler) times(s signer, bundle loadedBundle) []time.Time {
	times := []time.Time{refreshAt(s.current.cert), s.current.cert.NotAfter}
	for _, ca := range bundle.cas {
		times = append(times, ca.NotAfter)
	}
	for _, since := range []time.Time{s.published, s.nextPublished} {
		if !since.IsZero() {
			times = append(times, since.Add(r.options.Overlap))
		}
	}
	return times
}

// settled returns the rule when a CA may sign: when it has been published for the
// overlap, and, where Pods must be made anew to see it, the oldest of them was.
func (r *reconciler) settled(now, oldestPod time.Time) settled {
	return func(since time.Time) bool {
		return !since.IsZero() && !now.Before(since.Add(r.options.Overlap)) &&
			(oldestPod.IsZero() || oldestPod.After(since))
	}
}

// advance takes the steps of the signer that are due, and keeps each of them in its
// Secret.
func (r *reconciler) advance(ctx context.Context, a authority, secret *corev1.Secret, s signer, ok settled, now time.Time) (signer, error) {
	for {
		step := s.step(now, ok)
		var event signerEvent
		switch step {
		case signerKeep:
			return s, nil
		case signerPromote:
			s = signer{current: s.next, published: s.nextPublished}
			event = signerInUse
		case signerMake, signerMakeNext:
			made, err := newCA(a.signer, now, a.validity)
			if err != nil {
				return s, err
			}
			if step == signerMake {
				s, event = signer{current: made}, signerCreated
			} else {
				s.next, s.nextPublished, s.requested, event = made, time.Time{}, false, signerPrepared
			}
		}
		if err := r.objects.saveSigner(ctx, secret, s); err != nil {
			return s, err
		}
		r.noteSigner(ctx, secret, event)
	}
}

// notePublished keeps the time since when the CAs of the signer are wherever they
// must be.
func (r *reconciler) notePublished(ctx context.Context, secret *corev1.Secret, s signer) (signer, error) {
	now, noted := r.clock.Now(), true
	if s.published.IsZero() {
		s.published, noted = now, false
	}
	if s.next != nil && s.nextPublished.IsZero() {
		s.nextPublished, noted = now, false
	}
	if noted {
		return s, nil
	}
	return s, r.objects.saveSigner(ctx, secret, s)
}

// ensureTargets brings the Secrets of the certificates to what they should be: the
// bundle, and the certificate anew if it must be. It returns the times at which
// something is due about them.
func (r *reconciler) ensureTargets(ctx context.Context, targets []loadedTarget, bundle loadedBundle, ca *keyPair, caSettled bool, now time.Time) ([]time.Time, error) {
	var times []time.Time
	for _, t := range targets {
		pair := t.pair
		reason := renewal(pair, t.target, bundle.cas, ca, caSettled, now)
		if reason != "" {
			made, err := issue(ca, t.target, now, r.options.Validity)
			if err != nil {
				return nil, err
			}
			pair = made
		}
		if err := r.objects.store.SaveSecret(ctx, t.secret, map[string][]byte{keyCert: pair.certPEM, keyKey: pair.keyPEM, keyCA: bundle.pem}, nil); err != nil {
			return nil, err
		}
		if reason != "" {
			r.noteIssued(ctx, t, pair, reason)
		}
		observe(t.secret.Name, pair.cert)
		times = append(times, refreshAt(pair.cert), pair.cert.NotAfter)
	}
	return times, nil
}

// loadedBundle is a bundle, decoded and not.
type loadedBundle struct {
	cas []*x509.Certificate
	pem []byte
}
