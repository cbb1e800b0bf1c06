// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// plane is the control plane that all tests share, for which each takes a namespace and
// an APIService of its own.
var plane controlplane.Shared

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// fixture is an install to look after: a namespace and what is in it.
type fixture struct {
	t       *testing.T
	client  client.Client
	user    *rest.Config // has the rights that the package says it needs, no more
	options Options
	elect   bool // several instances have a leader
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := plane.Get(t)
	admin, err := client.New(c.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := "certs-" + strings.ToLower(strings.TrimPrefix(strings.ReplaceAll(t.Name(), "/", "-"), "Test"))
	o := NewOptions()
	o.Namespace, o.APIServices, o.EtcdMembers = ns, []string{"v1." + ns + ".example.io", "v2." + ns + ".example.io"}, 3
	f := &fixture{t: t, client: admin, options: o, elect: true}
	f.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	if f.user, err = c.User(ns); err != nil {
		t.Fatal(err)
	}
	f.grant()
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

// grant gives the user the rights in the package's documentation.
func (f *fixture) grant() {
	f.t.Helper()
	ns := f.options.Namespace
	read, own := []string{"get", "list", "watch"}, []string{"get", "list", "watch", "update"}
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: ns}}
	name := metav1.ObjectMeta{Name: ns, Namespace: ns}
	f.create(
		&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"}, Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: f.options.Secrets(), Verbs: own},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: f.options.ConfigMaps(), Verbs: own},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
			{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: name, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: ns}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"},
			ResourceNames: f.options.APIServices, Verbs: append([]string{"patch"}, read...),
		}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ns}, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns}},
	)
}

// registerAPI creates the APIService, which has no server.
func (f *fixture) registerAPI(insecure bool) {
	f.t.Helper()
	f.registerVersion("v1", map[string]any{
		"insecureSkipTLSVerify": insecure,
		"service":               map[string]any{"namespace": f.options.Namespace, "name": f.options.APIServerService},
	})
}

// registerVersion creates the APIService of a version.
func (f *fixture) registerVersion(version string, spec map[string]any) {
	f.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(secrets.APIService)
	object.SetName(version + "." + f.options.Namespace + ".example.io")
	object.Object["spec"] = spec
	spec["group"], spec["version"] = f.options.Namespace+".example.io", version
	spec["groupPriorityMinimum"], spec["versionPriority"] = int64(1), int64(1)
	f.create(object)
	f.t.Cleanup(func() {
		if err := f.client.Delete(context.Background(), object); err != nil {
			f.t.Error(err)
		}
	})
}

// reconcilers are made for calling them directly.
func (f *fixture) newReconciler(clk *clocktesting.FakePassiveClock, recorder events.EventRecorder) *reconciler {
	f.t.Helper()
	limited, err := client.New(f.user, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		f.t.Fatal(err)
	}
	r := &reconciler{
		objects:  &objects{&secrets.Store{Reader: limited, Writer: limited, Namespace: f.options.Namespace}, f.options},
		recorder: recorder, clock: clk, options: f.options,
		authorities: map[string]authority{}, warned: map[string]time.Time{},
	}
	for _, a := range f.options.authorities() {
		r.authorities[a.name] = a
	}
	return r
}

func (f *fixture) get(name string, object client.Object) error {
	return f.client.Get(f.t.Context(), client.ObjectKey{Namespace: f.options.Namespace, Name: name}, object)
}

// state is everything that clients and servers see, read in the order that is
// worse for us: what is trusted before what is served.
type state struct {
	caBundle, configMap []*x509.Certificate // of serving
	etcd                []*x509.Certificate
	leaves              map[string]*keyPair
	trusts              map[string][]*x509.Certificate // ca.crt, by Secret
	signers             map[string]signer
	versions            map[string]string
	published           map[string]string // caBundles by APIService
}

func (f *fixture) state() (*state, error) {
	s := &state{
		leaves: map[string]*keyPair{}, trusts: map[string][]*x509.Certificate{}, signers: map[string]signer{}, versions: map[string]string{},
		published: map[string]string{},
	}
	o := &objects{&secrets.Store{Reader: f.client, Namespace: f.options.Namespace}, f.options}
	for _, a := range f.options.authorities() {
		services, err := o.loadAPIServices(f.t.Context(), a)
		if err != nil {
			return nil, err
		}
		if len(services) > 0 {
			s.caBundle = parseBundle(services[0].caBundle)
		}
		for _, service := range services {
			s.published[service.object.GetName()] = string(service.caBundle)
		}
		object := &corev1.ConfigMap{}
		if err := f.get(a.bundle, object); err != nil {
			return nil, err
		}
		s.versions[a.bundle] = object.ResourceVersion
		if a.restarts {
			s.etcd = parseBundle([]byte(object.Data[keyBundle]))
		} else {
			s.configMap = parseBundle([]byte(object.Data[keyBundle]))
		}
		secret, signer, err := o.loadSigner(f.t.Context(), a)
		if err != nil {
			return nil, err
		}
		s.signers[a.name], s.versions[a.signer] = signer, secret.ResourceVersion
		targets, err := o.loadTargets(f.t.Context(), a)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			s.leaves[t.target.secret] = t.pair
			s.trusts[t.target.secret] = parseBundle(t.secret.Data[keyCA])
			s.versions[t.target.secret] = t.secret.ResourceVersion
		}
	}
	return s, nil
}

// check reports what is not as it must be at any moment without interference:
// everything is there, and all that is served is accepted by all who trust.
func (f *fixture) check(s *state, now time.Time, withAPIService bool) error {
	for _, a := range f.options.authorities() {
		if s.signers[a.name].current == nil {
			return fmt.Errorf("%s: there is no CA", a.name)
		}
		for _, t := range a.targets {
			leaf := s.leaves[t.secret]
			if leaf == nil {
				return fmt.Errorf("%s: there is no certificate", t.secret)
			}
			trusts := map[string][]*x509.Certificate{"its ca.crt": s.trusts[t.secret], "the ConfigMap": s.configMap}
			if a.restarts {
				trusts["the ConfigMap"] = s.etcd
			} else if withAPIService {
				trusts["the APIService"] = s.caBundle
			}
			for where, bundle := range trusts {
				if !leaf.serves(t, bundle, now) {
					return fmt.Errorf("%s: not accepted by who trusts %s (%v)", t.secret, where, subjects(bundle))
				}
			}
			if !leaf.isFor(t) {
				return fmt.Errorf("%s: is for %v", t.secret, leaf.cert.DNSNames)
			}
		}
	}
	return nil
}
