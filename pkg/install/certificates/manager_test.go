// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// run starts a manager and returns what stops it and waits for it. It is stopped
// with the test in any case.
func (f *fixture) run() (stop func()) {
	f.t.Helper()
	mgr, err := secrets.NewManager(f.user, secrets.ManagerOptions{Namespace: f.options.Namespace, LeaderElect: f.elect})
	if err == nil {
		err = AddTo(mgr, f.options)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx); close(ended) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("the manager ended: %v", err)
		}
	}
	f.t.Cleanup(stop)
	return stop
}

// eventually waits for the state to be as it must be and as the test wants it.
func (f *fixture) eventually(what string, withAPIService bool, want func(*state) error) *state {
	f.t.Helper()
	var s *state
	expect.Eventually(f.t.Context(), f.t, func(context.Context) (err error) {
		s, err = f.state()
		if err == nil {
			err = f.check(s, time.Now(), withAPIService)
		}
		if err == nil {
			err = want(s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
	return s
}

func anything(*state) error { return nil }

func TestMakesEverythingFromNothing(t *testing.T) {
	f := newFixture(t)
	f.run()
	s := f.eventually("without an APIService", false, anything)
	f.registerAPI(true)
	after := f.eventually("with an APIService", true, anything)
	if !after.leaves[ServingSecret].cert.Equal(s.leaves[ServingSecret].cert) {
		t.Error("the certificate was made anew for the APIService")
	}
	if len(after.caBundle) != 1 || len(after.etcd) != 1 || after.caBundle[0].Equal(after.etcd[0]) {
		t.Error("there is not one CA of each authority")
	}
	secret := &corev1.Secret{}
	if err := f.get(ServingSecret, secret); err != nil {
		t.Fatal(err)
	}
	if secret.Type != corev1.SecretTypeTLS || secret.Labels["app.kubernetes.io/part-of"] != "sandlot" {
		t.Errorf("the Secret has type %s and labels %v", secret.Type, secret.Labels)
	}
}

// Every APIService that is ours has the caBundle, whenever it comes; the one of someone
// else is not touched, as those are that kube-apiserver makes for CRDs.
func TestSeveralAPIServices(t *testing.T) {
	f := newFixture(t)
	ours := map[string]any{"service": map[string]any{"namespace": f.options.Namespace, "name": f.options.APIServerService}}
	// The second is there first, and serves nothing of ours.
	f.registerVersion("v2", map[string]any{
		"service":  map[string]any{"namespace": f.options.Namespace, "name": "other"},
		"caBundle": base64.StdEncoding.EncodeToString(caOf(t, time.Now(), day).certPEM),
	})
	first, second := f.options.APIServices[0], f.options.APIServices[1]
	foreign := f.caBundle(second)
	f.run()
	f.eventually("made", false, anything)
	f.registerVersion("v1", ours)
	s := f.eventually("the first", true, anything)
	if _, published := s.published[second]; published || f.caBundle(second) != foreign {
		t.Error("the APIService of another Service got our caBundle")
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(secrets.APIService)
	object.SetName(second)
	patch := fmt.Appendf(nil, `{"spec": {"service": {"name": %q}}}`, f.options.APIServerService)
	if err := f.client.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	f.eventually("both", true, func(s *state) error {
		if s.published[first] == "" || s.published[first] != s.published[second] {
			return fmt.Errorf("published are %d and %d bytes", len(s.published[first]), len(s.published[second]))
		}
		return nil
	})
}

// caBundle is what is in an APIService, whichever server serves it.
func (f *fixture) caBundle(name string) string {
	f.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(secrets.APIService)
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Name: name}, object); err != nil {
		f.t.Fatal(err)
	}
	bundle, _, err := unstructured.NestedString(object.Object, "spec", "caBundle")
	if err != nil {
		f.t.Fatal(err)
	}
	return bundle
}

func TestHeals(t *testing.T) {
	f := newFixture(t)
	f.registerAPI(false)
	f.run()
	// The signer has been published, too, so nothing is left to do.
	settledState := func(s *state) error {
		for name, signer := range s.signers {
			if name == "serving" && signer.published.IsZero() {
				return errors.New("not published")
			}
		}
		return nil
	}
	for _, tc := range []struct {
		name   string
		meddle func() error
		// anew are the Secrets whose certificate may be another one afterwards.
		anew []string
	}{
		{"serving Secret deleted", func() error { return f.delete(ServingSecret, &corev1.Secret{}) }, []string{ServingSecret}},
		{"etcd Secret deleted", func() error { return f.delete(EtcdPeerSecret, &corev1.Secret{}) }, []string{EtcdPeerSecret}},
		{"bundle deleted", func() error { return f.delete(CAConfigMap, &corev1.ConfigMap{}) }, nil},
		{"etcd bundle deleted", func() error { return f.delete(EtcdCAConfigMap, &corev1.ConfigMap{}) }, nil},
		{"certificate spoilt", func() error { return f.spoil(ServingSecret, keyCert) }, []string{ServingSecret}},
		{"key spoilt", func() error { return f.spoil(EtcdClientSecret, keyKey) }, []string{EtcdClientSecret}},
		{"ca.crt spoilt", func() error { return f.spoil(EtcdServerSecret, keyCA) }, nil},
		{"bundle spoilt", f.spoilBundle, nil},
		{"caBundle removed", func() error { return f.patchCABundle(nil) }, nil},
		{"caBundle of someone else", func() error { return f.patchCABundle(caOf(t, time.Now(), day).certPEM) }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := f.eventually("before", true, settledState)
			if err := tc.meddle(); err != nil {
				t.Fatal(err)
			}
			after := f.eventually("after", true, settledState)
			for secret, leaf := range before.leaves {
				if changed := !leaf.cert.Equal(after.leaves[secret].cert); changed != slices.Contains(tc.anew, secret) {
					t.Errorf("%s: made anew %t", secret, changed)
				}
			}
			if diff := cmp.Diff(subjects(before.caBundle), subjects(after.caBundle)); diff != "" {
				t.Errorf("other CAs are trusted: -before +after\n%s", diff)
			}
		})
	}
}

func (f *fixture) delete(name string, object client.Object) error {
	object.SetNamespace(f.options.Namespace)
	object.SetName(name)
	return f.client.Delete(f.t.Context(), object)
}

func (f *fixture) spoil(secret, key string) error {
	object := &corev1.Secret{}
	if err := f.get(secret, object); err != nil {
		return err
	}
	object.Data[key] = []byte("spoilt")
	return f.client.Update(f.t.Context(), object)
}

func (f *fixture) spoilBundle() error {
	object := &corev1.ConfigMap{}
	if err := f.get(CAConfigMap, object); err != nil {
		return err
	}
	object.Data = map[string]string{keyBundle: "spoilt"}
	return f.client.Update(f.t.Context(), object)
}

func (f *fixture) patchCABundle(bundle []byte) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(secrets.APIService)
	object.SetName(f.options.APIServices[0])
	patch := []byte(`{"spec":{"caBundle":null}}`)
	if bundle != nil {
		patch = fmt.Appendf(nil, `{"spec":{"caBundle":%q}}`, base64.StdEncoding.EncodeToString(bundle))
	}
	return f.client.Patch(f.t.Context(), object, client.RawPatch("application/merge-patch+json", patch))
}

// An admin rotates the CA by deleting it. The certificate in use stays accepted at
// every moment, is signed by the new CA when that has been published for the
// overlap, and the old CA stays trusted until someone removes it.
func TestSignerDeleted(t *testing.T) {
	f := newFixture(t)
	f.options.Overlap = 5 * time.Second
	f.registerAPI(false)
	f.run()
	before := f.eventually("before", true, func(s *state) error {
		if s.signers["serving"].published.IsZero() {
			return errors.New("not published")
		}
		return nil
	})
	old := before.signers["serving"].current
	if err := f.delete(SignerSecret, &corev1.Secret{}); err != nil {
		t.Fatal(err)
	}
	// From here on, whatever is seen must fit.
	var published time.Time
	expect.Eventually(t.Context(), t, func(context.Context) error {
		s, err := f.state()
		if err != nil {
			t.Fatal(err)
		}
		leaf, signer := s.leaves[ServingSecret], s.signers["serving"]
		if !leaf.serves(f.options.authorities()[0].targets[0], s.caBundle, time.Now()) {
			t.Fatalf("the certificate is not accepted by who trusts %v", subjects(s.caBundle))
		}
		if signer.current == nil || leaf.signedBy(old) {
			return errors.New("the old CA still signs")
		}
		published = signer.published
		return nil
	})
	if published.IsZero() || time.Since(published) < f.options.Overlap {
		t.Errorf("the new CA, published at %s, signed at %s already", published, time.Now())
	}
	after := f.eventually("after", true, anything)
	if len(after.caBundle) != 2 || !after.caBundle[1].Equal(old.cert) {
		t.Fatalf("trusted are %v", subjects(after.caBundle))
	}
	// If the bundle is lost, what it was is taken from where it was published.
	if err := f.delete(CAConfigMap, &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	f.eventually("the bundle again", true, func(s *state) error {
		if len(s.configMap) != 2 || !s.configMap[1].Equal(old.cert) {
			t.Fatalf("the old CA is not trusted any more, but %v", subjects(s.configMap))
		}
		return nil
	})
	// The old CA is compromised: it must go now. What it signed is replaced first.
	object := &corev1.ConfigMap{}
	if err := f.get(CAConfigMap, object); err != nil {
		t.Fatal(err)
	}
	object.Data[keyBundle] = string(after.signers["serving"].current.certPEM)
	if err := f.client.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	f.eventually("without the old CA", true, func(s *state) error {
		if len(s.caBundle) != 1 || len(s.trusts[ServingSecret]) != 1 || s.caBundle[0].Equal(old.cert) {
			return fmt.Errorf("trusted are %v", subjects(s.caBundle))
		}
		return nil
	})
}

// Of two instances one works; when it is gone the other one does. And without any
// election, when both believe to be the leader, they agree all the same.
func TestTwoInstances(t *testing.T) {
	for name, elect := range map[string]bool{"elected": true, "both": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.elect = elect
			f.registerAPI(false)
			stop := f.run()
			f.run()
			quiet := func(s *state) error {
				if s.signers["serving"].published.IsZero() || s.signers["etcd"].published.IsZero() {
					return errors.New("not published")
				}
				return nil
			}
			for range 3 {
				s := f.eventually("made", true, quiet)
				for _, signer := range []string{"serving", "etcd"} {
					if s.signers[signer].current == nil {
						t.Fatal("no CA")
					}
				}
				if err := f.delete(SignerSecret, &corev1.Secret{}); err != nil {
					t.Fatal(err)
				}
				if err := f.delete(ServingSecret, &corev1.Secret{}); err != nil {
					t.Fatal(err)
				}
			}
			s := f.eventually("settled", true, quiet)
			// Two that fight write whenever they reconcile. Each change of a bundle's
			// annotations makes all that work do so.
			working := 2
			if elect {
				working = 1
			}
			for round := range 3 {
				want := maps.Clone(s.versions)
				done := reconciles(t) + working*f.annotate(want, strconv.Itoa(round))
				f.eventually("reconciled", true, func(*state) error {
					if now := reconciles(t); now < done {
						return fmt.Errorf("%d reconciles, not %d yet", now, done)
					}
					return nil
				})
				s = f.eventually("settled", true, quiet)
				if diff := cmp.Diff(want, s.versions); diff != "" {
					t.Errorf("they continue writing: versions -before +after\n%s", diff)
				}
			}
			stop()
			if err := f.delete(ServingSecret, &corev1.Secret{}); err != nil {
				t.Fatal(err)
			}
			f.eventually("by the one that is left", true, quiet)
		})
	}
}

// annotate changes the bundles of all authorities, writes their versions, and returns how
// many there are.
func (f *fixture) annotate(versions map[string]string, value string) int {
	f.t.Helper()
	authorities := f.options.authorities()
	for _, a := range authorities {
		object := &corev1.ConfigMap{}
		if err := f.get(a.bundle, object); err != nil {
			f.t.Fatal(err)
		}
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, "example.com/round", value)
		if err := f.client.Update(f.t.Context(), object); err != nil {
			f.t.Fatal(err)
		}
		versions[a.bundle] = object.ResourceVersion
	}
	return len(authorities)
}

// reconciles returns how often the managers of this process have reconciled.
func reconciles(t *testing.T) int {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	count := 0.0
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			count += metric.GetCounter().GetValue()
		}
	}
	return int(count)
}

func TestEvents(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.eventually("made", false, anything)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := f.client.List(ctx, list, client.InNamespace(f.options.Namespace)); err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, event := range list.Items {
			seen[event.InvolvedObject.Name+" "+event.Reason] = true
		}
		if !seen[SignerSecret+" CACreated"] || !seen[ServingSecret+" "+reasonIssued] {
			return fmt.Errorf("no events about what was made, but %v", seen)
		}
		return nil
	})
}

// A certificate of which the names have changed follows.
func TestNamesFollow(t *testing.T) {
	f := newFixture(t)
	f.options.Overlap = time.Second
	f.registerAPI(false)
	stop := f.run()
	f.eventually("made", true, anything)
	stop()
	f.options.APIServerNames = []string{"sandlot.example.com"}
	f.run()
	f.eventually("with the further name", true, anything)
}
