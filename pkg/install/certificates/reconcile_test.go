// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
)

// Years of rotation against a real API, one wake-up after the other. At each, and
// between what was and what is, clients that trust one accept what is served.
func TestRotation(t *testing.T) {
	f := newFixture(t)
	f.options.EtcdMembers = 0
	f.options.SignerValidity = 270 * day
	f.registerAPI(true)
	clk := clocktesting.NewFakePassiveClock(start)
	recorder := events.NewFakeRecorder(1000)
	r := f.newReconciler(clk, recorder)

	var logged strings.Builder
	ctx := log.IntoContext(t.Context(), funcr.New(func(prefix, args string) {
		logged.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{Verbosity: 9}))

	var before *state
	cas, leaves, overlaps := map[string]bool{}, map[string]bool{}, 0
	for clk.Now().Before(start.Add(3 * 365 * day)) {
		result, err := r.Reconcile(ctx, requestFor("serving"))
		if err != nil {
			t.Fatal(err)
		}
		now := clk.Now()
		s, err := f.state()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.check(s, now, true); err != nil {
			t.Fatalf("%s: %v", now, err)
		}
		if before != nil && !s.leaves[ServingSecret].serves(r.authorities["serving"].targets[0], before.caBundle, now) {
			t.Fatalf("%s: the new certificate is not accepted by who has not seen the new bundle yet", now)
		}
		if before != nil && !before.leaves[ServingSecret].serves(r.authorities["serving"].targets[0], s.caBundle, now) {
			t.Fatalf("%s: the certificate before is not accepted any more, and there may be servers that still use it", now)
		}
		if len(s.caBundle) > 1 {
			overlaps++
		}
		for _, ca := range s.caBundle {
			cas[ca.Subject.CommonName] = true
		}
		leaves[string(s.leaves[ServingSecret].certPEM)] = true

		if result.RequeueAfter <= 0 {
			t.Fatalf("%s: would never wake again", now)
		}
		// Longer rests than the bound are there for clocks that jump. Each of them
		// taken would make this test long.
		again, err := f.state()
		if err != nil {
			t.Fatal(err)
		}
		before = again
		rest := result.RequeueAfter
		if rest == secrets.LongestRest {
			rest = 5 * day
		}
		clk.SetTime(now.Add(rest))
	}
	if len(cas) < 5 || len(leaves) < 15 || overlaps == 0 {
		t.Errorf("%d CAs, %d certificates, %d overlaps in three years: no rotation", len(cas), len(leaves), overlaps)
	}
	said := logged.String()
	for len(recorder.Events) > 0 {
		said += <-recorder.Events
	}
	if !strings.Contains(said, "certificate") || strings.Contains(said, "PRIVATE") || strings.Contains(said, "BEGIN") {
		t.Errorf("logged and reported something with a key in it, or nothing:\n%.2000s", said)
	}
}

// An admin asks for the next CA of each authority. No key is lost meanwhile, so
// what is lost of certificates is made anew by the CA that clients trust.
func TestRotationRequested(t *testing.T) {
	f := newFixture(t)
	clk := clocktesting.NewFakePassiveClock(start)
	r := f.newReconciler(clk, events.NewFakeRecorder(1000))
	f.registerAPI(false)
	reconcile := func(after time.Duration) *state {
		t.Helper()
		clk.SetTime(clk.Now().Add(after))
		for name := range r.authorities {
			if _, err := r.Reconcile(t.Context(), requestFor(name)); err != nil {
				t.Fatal(err)
			}
		}
		s, err := f.state()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.check(s, clk.Now(), true); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := reconcile(0)
	for _, name := range []string{SignerSecret, EtcdSignerSecret} {
		secret := &corev1.Secret{}
		if err := f.get(name, secret); err != nil {
			t.Fatal(err)
		}
		secret.Annotations[AnnotationRotateCA] = "now"
		if err := f.client.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.delete(EtcdPeerSecret, &corev1.Secret{}); err != nil {
		t.Fatal(err)
	}
	second := reconcile(time.Minute)
	for name := range r.authorities {
		before, after := first.signers[name], second.signers[name]
		if !after.current.cert.Equal(before.current.cert) || after.next == nil || after.requested {
			t.Errorf("%s: the next CA does not wait beside the one that signs, or is still asked for", name)
		}
	}
	if !second.leaves[EtcdPeerSecret].signedBy(first.signers["etcd"].current) {
		t.Error("a certificate of a CA that is not settled")
	}
	third := reconcile(f.options.Overlap)
	for name := range r.authorities {
		if got := third.signers[name]; !got.current.cert.Equal(second.signers[name].next.cert) || got.next != nil || got.requested {
			t.Errorf("%s: the next CA does not sign, or another one is on its way", name)
		}
	}
	if fourth := reconcile(f.options.Overlap); len(fourth.caBundle) != 2 || len(fourth.etcd) != 2 {
		t.Errorf("%d and %d CAs are trusted", len(fourth.caBundle), len(fourth.etcd))
	}
}

// The CA of etcd waits for Pods that cannot know it. Times are about now, for the
// API server dates the Pods.
func TestEtcdWaitsForRestarts(t *testing.T) {
	f := newFixture(t)
	f.options.Overlap = time.Second
	now := time.Now()
	clk := clocktesting.NewFakePassiveClock(now.Add(-7 * 365 * day))
	recorder := events.NewFakeRecorder(1000)
	r := f.newReconciler(clk, recorder)
	reconcile := func(at time.Time) *state {
		t.Helper()
		clk.SetTime(at)
		if _, err := r.Reconcile(t.Context(), requestFor("serving")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), requestFor("etcd")); err != nil {
			t.Fatal(err)
		}
		s, err := f.state()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.check(s, at, false); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := reconcile(clk.Now()).signers["etcd"].current
	old := f.mountingPod("old", EtcdClientSecret)
	f.create(f.mountingPod("ended", EtcdPeerSecret), f.mountingPod("other", "sandlot-something-else"), old)
	f.end("ended")

	now = time.Now()
	s := reconcile(now)
	next := s.signers["etcd"].next
	if next == nil || !s.signers["etcd"].current.cert.Equal(first.cert) || len(s.etcd) != 2 {
		t.Fatalf("after 7 of 10 years there is no next CA that is published and does not sign")
	}
	// All the overlaps in the world do not help.
	s = reconcile(now.Add(400 * day))
	if s.signers["etcd"].next == nil || !s.leaves[EtcdClientSecret].signedBy(first) {
		t.Fatal("a CA signs that the Pod from before cannot know")
	}
	warned := false
	for len(recorder.Events) > 0 {
		warned = warned || strings.Contains(<-recorder.Events, reasonRestartNeeded)
	}
	if !warned {
		t.Error("no event tells that the Pod must be restarted")
	}
	if err := f.client.Delete(t.Context(), old, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	young := f.mountingPod("young", EtcdServerSecret)
	f.create(young)
	for !young.CreationTimestamp.After(now) { // the times of the API have seconds only
		if err := f.client.Delete(t.Context(), young, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		young = f.mountingPod("young", EtcdServerSecret)
		f.create(young)
	}
	s = reconcile(now.Add(400 * day))
	if s.signers["etcd"].next != nil || !s.signers["etcd"].current.cert.Equal(next.cert) {
		t.Fatal("the next CA does not sign, though all Pods know it")
	}
	for _, secret := range []string{EtcdServerSecret, EtcdPeerSecret, EtcdClientSecret} {
		if !s.leaves[secret].signedBy(next) {
			t.Errorf("%s is not signed by the new CA", secret)
		}
	}
	if len(s.etcd) != 2 {
		t.Errorf("%d CAs are trusted, want the new one and the one before", len(s.etcd))
	}
}

// The CA of an install without its APIService is published nowhere, so the one after it
// waits. That no restart helps is no reason to ask for one.
func TestNoRestartForAnAPIServiceToCome(t *testing.T) {
	f := newFixture(t)
	f.options.EtcdMembers = 0
	clk := clocktesting.NewFakePassiveClock(time.Now())
	recorder := events.NewFakeRecorder(1000)
	r := f.newReconciler(clk, recorder)
	for _, after := range []time.Duration{0, r.authorities["serving"].validity * 9 / 10, 2 * f.options.Overlap} {
		clk.SetTime(clk.Now().Add(after))
		if _, err := r.Reconcile(t.Context(), requestFor("serving")); err != nil {
			t.Fatal(err)
		}
	}
	s, err := f.state()
	if err == nil && s.signers["serving"].next == nil {
		err = errors.New("there is no next CA")
	}
	if err != nil {
		t.Fatal(err)
	}
	for len(recorder.Events) > 0 {
		if e := <-recorder.Events; strings.Contains(e, reasonRestartNeeded) {
			t.Errorf("an event asks for a restart: %s", e)
		}
	}
}

func (f *fixture) mountingPod(name, secret string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.options.Namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"no-such": "node"},
			Containers:   []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
					Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}},
				}}},
			}}},
		},
	}
}

func (f *fixture) end(pod string) {
	f.t.Helper()
	object := &corev1.Pod{}
	if err := f.get(pod, object); err != nil {
		f.t.Fatal(err)
	}
	before := object.DeepCopy()
	object.Status.Phase = corev1.PodFailed
	// A patch, for the scheduler writes the Pod's status, too.
	if err := f.client.Status().Patch(f.t.Context(), object, client.MergeFrom(before)); err != nil {
		f.t.Fatal(err)
	}
}
