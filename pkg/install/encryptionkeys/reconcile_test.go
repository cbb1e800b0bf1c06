// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// plane is the control plane that all tests share; each has a namespace of its own.
var plane controlplane.Shared

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// fixture is a namespace with keys.
type fixture struct {
	t         *testing.T
	client    client.Client
	user      *rest.Config // may do what the install lets it
	namespace string
	clock     *clocktesting.FakePassiveClock
	recorder  *events.FakeRecorder
	reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := plane.Get(t)
	admin, err := client.New(c.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := "keys-" + strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	f := &fixture{t: t, client: admin, namespace: ns, clock: clocktesting.NewFakePassiveClock(start), recorder: events.NewFakeRecorder(1000)}
	f.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	if f.user, err = c.User(ns); err != nil {
		t.Fatal(err)
	}
	f.grant()
	limited, err := client.New(f.user, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	f.reconciler = reconciler{
		store:    &secrets.Store{Reader: limited, Writer: limited, Namespace: ns},
		recorder: f.recorder, clock: f.clock, options: NewOptions(),
	}
	return f
}

func (f *fixture) create(objects ...client.Object) {
	f.t.Helper()
	for _, object := range objects {
		if err := f.client.Create(f.t.Context(), object); err != nil {
			f.t.Fatal(err)
		}
	}
}

// grant gives the user rights to the objects by their names, which is enough.
func (f *fixture) grant() {
	f.t.Helper()
	name := metav1.ObjectMeta{Name: f.namespace, Namespace: f.namespace}
	read := []string{"get", "list", "watch"}
	f.create(
		&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{Secret, CopySecret}, Verbs: append([]string{"update"}, read...)},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{ConfigMap}, Verbs: append([]string{"update"}, read...)},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: f.namespace},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: f.namespace}}},
	)
}

// step reconciles once, and again where another client was faster.
func (f *fixture) step() error {
	f.t.Helper()
	result, err := f.Reconcile(f.t.Context(), theKeys)
	if err == nil && result.RequeueAfter == secrets.RetryConflict {
		f.t.Fatal("a conflict of one with itself")
	}
	return err
}

func (f *fixture) mustStep() {
	f.t.Helper()
	if err := f.step(); err != nil {
		f.t.Fatal(err)
	}
}

// config is what a Secret has, or nothing.
func (f *fixture) config(name string) config {
	f.t.Helper()
	secret := &corev1.Secret{}
	err := f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return config{plain: true}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := decode(secret.Data[KeyConfig])
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// mustHave fails unless both Secrets have these keys, and the ConfigMap their names.
func (f *fixture) mustHave(plain bool, keys ...key) {
	f.t.Helper()
	for _, name := range []string{Secret, CopySecret} {
		if c := f.config(name); c.plain != plain || !slices.Equal(c.keys, keys) {
			f.t.Errorf("%s: plain %t, keys %v", name, c.plain, c.names())
		}
	}
	names := &corev1.ConfigMap{}
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: ConfigMap}, names); err != nil {
		f.t.Fatal(err)
	}
	if lost := (config{keys: keys}).missing(noted(names.Data[keyNames])); len(lost) > 0 || len(noted(names.Data[keyNames])) != len(keys) {
		f.t.Errorf("noted are %q", names.Data[keyNames])
	}
}

func (f *fixture) delete(objects ...client.Object) {
	f.t.Helper()
	for _, object := range objects {
		object.SetNamespace(f.namespace)
		if err := f.client.Delete(f.t.Context(), object); err != nil {
			f.t.Fatal(err)
		}
	}
}

func secretNamed(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// set writes the configuration of a Secret.
func (f *fixture) set(name string, data []byte) {
	f.t.Helper()
	secret := &corev1.Secret{}
	if err := f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, secret); err != nil {
		f.t.Fatal(err)
	}
	secret.Data = map[string][]byte{KeyConfig: data}
	if err := f.client.Update(f.t.Context(), secret); err != nil {
		f.t.Fatal(err)
	}
}

// seen returns the reasons of the events so far.
func (f *fixture) seen() []string {
	var reasons []string
	for {
		select {
		case event := <-f.recorder.Events:
			reasons = append(reasons, strings.Fields(event)[1])
		default:
			return reasons
		}
	}
}

func (f *fixture) later(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

// A key from nothing, then the next one by age and one more by request.
func TestRotates(t *testing.T) {
	f := newFixture(t)
	var logged strings.Builder
	ctx := log.IntoContext(t.Context(), funcr.New(func(prefix, args string) {
		logged.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{Verbosity: 9}))
	reconcile := func() {
		t.Helper()
		if _, err := f.Reconcile(ctx, theKeys); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	first := f.config(Secret).keys[0]
	f.mustHave(false, first)
	reconcile()
	f.mustHave(false, first)

	f.later(90 * day)
	reconcile()
	second := f.config(Secret).keys[1]
	f.mustHave(false, first, second)
	f.later(5 * time.Minute)
	reconcile()
	f.mustHave(false, first, second)
	f.later(5 * time.Minute)
	reconcile()
	f.mustHave(false, second, first)

	secret := secretNamed(Secret)
	secret.Namespace = f.namespace
	if err := f.client.Patch(t.Context(), secret, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "now"}}}`, AnnotationRotate))); err != nil {
		t.Fatal(err)
	}
	reconcile()
	third := f.config(Secret).keys[1]
	f.mustHave(false, second, third, first)
	if err := f.client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	if _, asked := secret.Annotations[AnnotationRotate]; asked {
		t.Error("the request stays")
	}
	f.later(10 * time.Minute)
	reconcile()
	f.mustHave(false, third, second, first)

	want := []string{stepFirst.reason, stepNext.reason, stepWrite.reason, stepNext.reason, stepWrite.reason}
	if got := f.seen(); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	for _, k := range []key{first, second, third} {
		if strings.Contains(logged.String(), k.Secret) {
			t.Errorf("%s is in the log", k.Name)
		}
		if !strings.Contains(logged.String(), k.Name) {
			t.Errorf("nothing about %s is in the log", k.Name)
		}
	}

	// Off and on again, with the same keys.
	f.options.AtRest = false
	reconcile()
	f.mustHave(true, third, second, first)
	f.options.AtRest = true
	reconcile()
	f.later(10 * time.Minute)
	reconcile()
	f.mustHave(false, third, second, first)
}

// An install that was not encrypted: while a server runs that knows no key, no server
// writes with one.
func TestUpgrade(t *testing.T) {
	f := newFixture(t)
	pod := func(name string, volumes ...corev1.Volume) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Labels: map[string]string{apiServerLabel: apiServerName}},
			Spec: corev1.PodSpec{
				Volumes: volumes, NodeName: "nowhere", // so that no part of the cluster takes it up
				TerminationGracePeriodSeconds: new(int64(0)),
				Containers:                    []corev1.Container{{Name: "c", Image: "i"}},
			},
		}
	}
	f.create(pod("old"), pod("new", corev1.Volume{Name: "e", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: Secret}}}))
	f.mustStep()
	k := f.config(Secret).keys[0]
	f.mustHave(true, k)
	f.later(day)
	f.mustStep()
	f.mustHave(true, k)
	f.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old"}})
	f.mustStep()
	f.mustHave(false, k)
}

// A key that a restore brings, regardless of who made it and of the age that its name says, is
// there to be read with: it does not become the one to write with, and where it is that already
// another one takes its place.
func TestRestoredKeys(t *testing.T) {
	f := newFixture(t)
	f.mustStep()
	first := f.config(Secret).keys[0]
	planted, younger := newKey(start.Add(70*365*day)), newKey(start.Add(time.Minute))
	f.set(Secret, encoded(t, first, planted, younger))
	for range 3 {
		f.mustStep()
		f.later(time.Hour)
	}
	f.mustHave(false, first, planted, younger)

	f.later(90 * day)
	f.mustStep()
	second := f.config(Secret).keys[1]
	f.mustHave(false, first, second, planted, younger)
	f.later(10 * time.Minute)
	f.mustStep()
	f.mustHave(false, second, first, planted, younger)
	if second.made().After(f.clock.Now()) {
		t.Errorf("key %s was made in the future", second.Name)
	}

	other := newKey(start.Add(80 * 365 * day))
	f.set(Secret, encoded(t, other, second))
	f.mustStep()
	f.later(10 * time.Minute)
	f.mustStep()
	f.mustHave(false, second, other, first, planted, younger)
	// And where there is none that was made here.
	f.set(Secret, encoded(t, newKey(start.Add(81*365*day))))
	f.set(CopySecret, encoded(t))
	names := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: ConfigMap}, Data: map[string]string{keyNames: ""}}
	if err := f.client.Update(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	f.mustStep()
	f.later(10 * time.Minute)
	f.mustStep()
	if keys := f.config(Secret).keys; len(keys) != 2 || keys[0].made().After(f.clock.Now()) {
		t.Errorf("keys %v", f.config(Secret).names())
	}
}

// An install that is not encrypted, and into which a restore has brought a key, is encrypted with
// one of its own.
func TestRestoredKeysInPlain(t *testing.T) {
	f := newFixture(t)
	f.options.AtRest = false
	f.mustStep()
	f.set(Secret, plainEncoded(t, newKey(start.Add(time.Minute))))
	f.mustStep()
	f.options.AtRest = true
	for range 2 {
		f.mustStep()
		f.later(10 * time.Minute)
	}
	f.mustStep()
	c := f.config(Secret)
	if len(c.keys) != 2 || c.plain || !c.keys[0].made().Equal(start) {
		t.Errorf("plain %t, keys %v", c.plain, c.names())
	}
}

// TestNamesOfKeys: a name is a line of the ConfigMap, regardless of who gave it.
func TestNamesOfKeys(t *testing.T) {
	f := newFixture(t)
	f.mustStep()
	first, named := f.config(Secret).keys[0], newKey(start.Add(time.Minute))
	for name, mine := range map[string]bool{"a b": true, " a": false, "a\nb": false, strings.Repeat("a", 254): false} {
		named.Name = name
		f.set(Secret, encoded(t, first, named))
		if err := f.step(); (err == nil) != mine || err != nil && !errors.Is(err, errForeign) {
			t.Errorf("%.10q: %v", name, err)
		}
	}
	named.Name = "a b"
	f.set(Secret, encoded(t, first, named))
	for range 2 {
		f.mustStep()
		f.mustHave(false, first, named)
	}
}

// What is deleted or spoilt comes again with the same keys. What is nowhere any more is
// not replaced.
func TestRepairs(t *testing.T) {
	f := newFixture(t)
	f.mustStep()
	f.later(90 * day)
	f.mustStep()
	f.later(10 * time.Minute)
	f.mustStep()
	keys := f.config(Secret).keys
	kept, err := f.config(Secret).encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, meddle := range map[string]func(){
		"deleted":       func() { f.delete(secretNamed(Secret)) },
		"copy deleted":  func() { f.delete(secretNamed(CopySecret)) },
		"names deleted": func() { f.delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMap}}) },
		"copy and names": func() {
			f.delete(secretNamed(CopySecret), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMap}})
		},
		"spoilt":             func() { f.set(Secret, []byte("spoilt")) },
		"copy spoilt":        func() { f.set(CopySecret, []byte("}")) },
		"emptied":            func() { f.set(CopySecret, nil) },
		"a key taken away":   func() { f.set(Secret, encoded(t, keys[0])) },
		"deleted, copy less": func() { f.set(CopySecret, encoded(t, keys[1])) },
	} {
		meddle()
		f.mustStep()
		f.mustHave(false, keys...)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	f.seen()

	// Both are gone.
	f.delete(secretNamed(Secret), secretNamed(CopySecret))
	for range 2 {
		f.mustStep()
		f.later(time.Hour)
	}
	if got := slices.Concat(f.config(Secret).keys, f.config(CopySecret).keys); len(got) > 0 {
		t.Fatalf("%d keys are made in the place of the lost ones", len(got))
	}
	if got := f.seen(); !slices.Equal(got, []string{"EncryptionKeysLost"}) {
		t.Errorf("events %v", got)
	}
	// An older backup: it is used, and the key of later is still asked for.
	f.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: Secret}, Data: map[string][]byte{KeyConfig: encoded(t, keys[1])}})
	f.later(day)
	f.mustStep()
	if got := f.config(CopySecret).keys; !slices.Equal(got, keys[1:]) {
		t.Errorf("%d keys", len(got))
	}
	if got := f.seen(); !slices.Equal(got, []string{"EncryptionKeysLost"}) {
		t.Errorf("events %v", got)
	}
	// The newest one.
	f.set(Secret, kept)
	f.mustStep()
	f.mustHave(false, keys...)
}

func plainEncoded(t *testing.T, keys ...key) []byte {
	t.Helper()
	data, err := config{keys: keys, plain: true}.encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func encoded(t *testing.T, keys ...key) []byte {
	t.Helper()
	data, err := config{keys: keys}.encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What is not ours is left alone.
func TestForeign(t *testing.T) {
	f := newFixture(t)
	for name, tc := range map[string]struct {
		data []byte
		want error
	}{
		"another provider": {[]byte(strings.Replace(string(encoded(t, keyOf(0))), "secretbox", "aescbc", 1)), errForeign},
		"not to be read":   {[]byte("}"), errSpoilt},
	} {
		f.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: Secret}, Data: map[string][]byte{KeyConfig: tc.data}})
		if err := f.step(); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		secret := secretNamed(Secret)
		if err := f.client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: Secret}, secret); err != nil || string(secret.Data[KeyConfig]) != string(tc.data) {
			t.Errorf("%s: it was changed (%v)", name, err)
		}
		f.delete(secret)
	}
}

// errCrash stands for the end of the process before a write.
var errCrash = errors.New("crash")

// crashing ends before the nth write.
type crashing struct {
	client.Writer
	left int
}

func (c *crashing) write() error {
	if c.left--; c.left < 0 {
		return errCrash
	}
	return nil
}

func (c *crashing) Create(ctx context.Context, object client.Object, o ...client.CreateOption) error {
	if err := c.write(); err != nil {
		return err
	}
	return c.Writer.Create(ctx, object, o...)
}

func (c *crashing) Update(ctx context.Context, object client.Object, o ...client.UpdateOption) error {
	if err := c.write(); err != nil {
		return err
	}
	return c.Writer.Update(ctx, object, o...)
}

// A crash between any two writes, at each step of a rotation: no key that API servers
// could have seen is missing afterwards, and all continues.
func TestCrashes(t *testing.T) {
	f := newFixture(t)
	writer := f.store.Writer
	seen := map[string]key{}
	for _, rest := range []time.Duration{0, 90 * day, 10 * time.Minute, 90 * day, 10 * time.Minute} {
		f.later(rest)
		for writes := range 3 {
			f.store.Writer = &crashing{writer, writes}
			if err := f.step(); err != nil && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			for _, k := range f.config(Secret).keys {
				seen[k.Name] = k
			}
			if writes == 1 && len(seen) > 0 { // meanwhile the Secret goes
				f.delete(secretNamed(Secret))
			}
		}
		f.store.Writer = writer
		f.mustStep()
		all := f.config(Secret)
		for name, k := range seen {
			if !slices.Contains(all.keys, k) {
				t.Fatalf("key %s was published and is gone", name)
			}
		}
		f.mustHave(false, all.keys...)
	}
	if len(seen) < 2 || f.config(Secret).keys[0].made().Before(start.Add(90*day)) {
		t.Errorf("after half a year there are %v", f.config(Secret).names())
	}
}

// Two that both believe to be the leader make one key, and the manager heals by itself.
func TestTwoManagers(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for range 2 {
		mgr, err := secrets.NewManager(f.user, secrets.ManagerOptions{Namespace: f.namespace})
		if err == nil {
			err = AddTo(mgr, f.namespace, NewOptions())
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- mgr.Start(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	var first []key
	settled := func(context.Context) error {
		published, copied := f.config(Secret), f.config(CopySecret)
		if len(published.keys) != 1 || published.plain || !slices.Equal(published.keys, copied.keys) {
			return fmt.Errorf("published are %v, in the copy %v", published.names(), copied.names())
		}
		if first != nil && !slices.Equal(first, published.keys) {
			t.Fatalf("the key is another one")
		}
		first = published.keys
		return nil
	}
	expect.Eventually(t.Context(), t, settled)
	for _, name := range []string{Secret, CopySecret} {
		f.delete(secretNamed(name))
		expect.Eventually(t.Context(), t, settled)
	}
}
