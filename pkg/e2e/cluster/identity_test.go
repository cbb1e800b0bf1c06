// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestClaimer lets users who may only claim do so, with a certificate and with the
// token of a service account, through the aggregator and past it. They may do it
// in their namespace, and nothing else.
func TestClaimer(t *testing.T) {
	t.Parallel()
	c, ns, other := admin(t), namespace(t), namespace(t)
	expect.FilledPool(t, c, ns, 4)
	expect.FilledPool(t, c, other, 1)
	user := uniqueUser(t, "claimer")
	grant(t, ns, "sandlot-claimer", user)
	account := serviceAccount(t, ns, "runner")
	accountName := "system:serviceaccount:" + ns + ":runner"
	grant(t, ns, "sandlot-claimer", accountName)

	byCertificate := as(t, user)
	for name, tc := range map[string]struct {
		who  *clients
		name string
	}{
		"certificate":         {byCertificate, user},
		"certificate, direct": {byCertificate.direct(t, 0), user},
		"token":               {account, accountName},
		"token, direct":       {account.direct(t, 1), accountName},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			wanted := builders.Claim("", 1)
			wanted.GenerateName = "mine-"
			var claim *v1alpha1.SandboxClaim
			expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a role takes a moment to be known
				var err error
				claim, err = tc.who.SandboxClaims(ns).Create(ctx, wanted, metav1.CreateOptions{})
				return err
			})
			sandbox := expect.Claimed(t, claim, 1)[0]
			if got := claim.Annotations[v1alpha1.AnnotationClaimedBy]; got != tc.name {
				t.Errorf("claimed by %q, want %q", got, tc.name)
			}
			if _, err := tc.who.Sandboxes(ns).Get(ctx, sandbox, metav1.GetOptions{}); err != nil {
				t.Errorf("reading the sandbox: %v", err)
			}
			for what, do := range map[string]func() error{
				"claim elsewhere": func() error {
					_, err := tc.who.SandboxClaims(other).Create(ctx, builders.Claim("mine", 1), metav1.CreateOptions{})
					return err
				},
				"list claims elsewhere": func() error {
					_, err := tc.who.SandboxClaims(other).List(ctx, metav1.ListOptions{})
					return err
				},
				"list sandboxes everywhere": func() error {
					_, err := tc.who.Sandboxes("").List(ctx, metav1.ListOptions{})
					return err
				},
				"change the pool": func() error {
					_, err := tc.who.SandboxSets(ns).Patch(ctx, "pool", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
					return err
				},
				"scale the pool": func() error {
					return tc.who.patchScale(ctx, ns, "pool", types.MergePatchType, `{"spec":{"replicas":0}}`, metav1.PatchOptions{})
				},
				"delete the pool": func() error { return tc.who.SandboxSets(ns).Delete(ctx, "pool", metav1.DeleteOptions{}) },
				"change a sandbox": func() error {
					_, err := tc.who.Sandboxes(ns).Patch(ctx, sandbox, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
					return err
				},
				"delete a sandbox": func() error { return tc.who.Sandboxes(ns).Delete(ctx, sandbox, metav1.DeleteOptions{}) },
				"make a sandbox": func() error {
					_, err := tc.who.Sandboxes(ns).Create(ctx, &v1alpha1.Sandbox{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
					return err
				},
				"write a status": func() error {
					_, err := tc.who.SandboxClaims(ns).Patch(ctx, claim.Name, types.MergePatchType, []byte(`{"status":{"claimedReplicas":9}}`), metav1.PatchOptions{}, "status")
					return err
				},
				"release what was claimed elsewhere": func() error {
					_, err := tc.who.SandboxClaims(other).Release(ctx, "any", &v1alpha1.SandboxClaimRelease{}, metav1.CreateOptions{})
					return err
				},
				"reach runtimes": func() error { // of all claims of the namespace
					_, err := tc.who.SandboxClaims(ns).RuntimeAccess(ctx, claim.Name, &v1alpha1.SandboxClaimRuntimeAccess{}, metav1.CreateOptions{})
					return err
				},
				"claim by apply": func() error { // which needs patch as well
					_, err := tc.who.SandboxClaims(ns).Patch(ctx, "applied", types.ApplyPatchType,
						[]byte(`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","spec":{"templateName":"pool"}}`), metav1.PatchOptions{FieldManager: "test"})
					return err
				},
				"read secrets": func() error {
					_, err := tc.who.kube.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
					return err
				},
			} {
				if strings.Contains(name, "direct") && what == "read secrets" {
					continue // nothing of ours
				}
				if err := do(); !apierrors.IsForbidden(err) {
					t.Errorf("%s: got %v, want it to be forbidden", what, err)
				}
			}
			if answer, err := tc.who.SandboxClaims(ns).Release(ctx, claim.Name, &v1alpha1.SandboxClaimRelease{}, metav1.CreateOptions{}); err != nil ||
				!slices.Equal(answer.Status.Released, []string{sandbox}) {
				t.Errorf("releasing sandbox %s: %+v, %v", sandbox, answer, err)
			}
			if err := tc.who.SandboxClaims(ns).Delete(ctx, claim.Name, metav1.DeleteOptions{}); err != nil {
				t.Errorf("deleting the own claim: %v", err)
			}
		})
	}
	if _, err := as(t, uniqueUser(t, "nobody")).SandboxClaims(ns).Create(t.Context(), builders.Claim("no", 1), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without any role: %v", err)
	}
	if claims, err := c.SandboxClaims(other).List(t.Context(), metav1.ListOptions{}); err != nil || len(claims.Items) > 0 {
		t.Errorf("in the other namespace are %v, %v", claims.Items, err)
	}
}

// TestGroups gives rights to a group: our server learns of it from the front proxy
// and from the certificate.
func TestGroups(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	team := uniqueUser(t, "team")
	_, err := c.kube.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sandlot-claimer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: team}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	member, other := as(t, uniqueUser(t, "ann"), "others", team), as(t, uniqueUser(t, "eve"), "others")
	for way, through := range map[string]func(*clients) *clients{
		"aggregator": func(c *clients) *clients { return c },
		"direct":     func(c *clients) *clients { return c.direct(t, 0) },
	} {
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := through(member).SandboxClaims(ns).Create(ctx, builders.Claim(way, 1), metav1.CreateOptions{})
			return err
		})
		if _, err := through(other).SandboxClaims(ns).Create(t.Context(), builders.Claim("no", 1), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: somebody of another group: %v", way, err)
		}
	}
}

// TestAggregatedRoles binds the roles of every cluster, which ours extend.
func TestAggregatedRoles(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	can := map[string]map[string]bool{
		"view":  {"list sets": true, "list claims": true},
		"edit":  {"list sets": true, "list claims": true, "claim": true, "scale": true, "delete a set": true},
		"admin": {"list sets": true, "list claims": true, "claim": true, "scale": true, "delete a set": true},
	}
	dry := []string{metav1.DryRunAll}
	for role, rights := range can {
		t.Run(role, func(t *testing.T) {
			user := uniqueUser(t, role)
			grant(t, ns, role, user)
			who := as(t, user)
			expect.Eventually(t.Context(), t, func(ctx context.Context) error {
				_, err := who.SandboxSets(ns).List(ctx, metav1.ListOptions{})
				return err
			})
			for what, do := range map[string]func() error{
				"list sets": func() error {
					_, err := who.SandboxSets(ns).List(t.Context(), metav1.ListOptions{})
					return err
				},
				"list claims": func() error {
					_, err := who.SandboxClaims(ns).List(t.Context(), metav1.ListOptions{})
					return err
				},
				"claim": func() error {
					_, err := who.SandboxClaims(ns).Create(t.Context(), builders.Claim("c", 1), metav1.CreateOptions{DryRun: dry})
					return err
				},
				"scale": func() error {
					return who.patchScale(t.Context(), ns, "pool", types.MergePatchType, `{"spec":{"replicas":3}}`, metav1.PatchOptions{DryRun: dry})
				},
				"delete a set": func() error {
					return who.SandboxSets(ns).Delete(t.Context(), "pool", metav1.DeleteOptions{DryRun: dry})
				},
				"write a status": func() error {
					_, err := who.Sandboxes(ns).Patch(t.Context(), "any", types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{DryRun: dry}, "status")
					return err
				},
			} {
				err := do()
				if rights[what] && err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if !rights[what] && !apierrors.IsForbidden(err) {
					t.Errorf("%s: got %v, want it to be forbidden", what, err)
				}
			}
		})
	}
}

// TestClaimedBy makes sure that no user can claim in the name of another, on any
// of the ways that lead to a claim.
func TestClaimedBy(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 4)
	// Names of users are whatever an identity provider makes of them.
	user := uniqueUser(t, `https://id.example.com#Ann "the" Müller, 名`)
	grant(t, ns, "edit", user)
	status := uniqueRole(t, ns, user, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"sandboxclaims/status"}, Verbs: []string{"update", "patch"},
	})
	who := as(t, user)
	forged := func(name string) *v1alpha1.SandboxClaim {
		claim := builders.Claim(name, 1)
		claim.Annotations = map[string]string{v1alpha1.AnnotationClaimedBy: "boss"}
		return claim
	}
	const patch = `{"metadata":{"annotations":{"` + v1alpha1.AnnotationClaimedBy + `":"boss"}}}`
	applied := func(name string) []byte {
		return []byte(`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"name":"` + name + `",
			"annotations":{"` + v1alpha1.AnnotationClaimedBy + `":"boss"}},"spec":{"templateName":"pool"}}`)
	}
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := who.SandboxClaims(ns).Create(ctx, forged("mine"), metav1.CreateOptions{})
		return err
	})
	for way, do := range map[string]func() (*v1alpha1.SandboxClaim, error){
		"create": func() (*v1alpha1.SandboxClaim, error) {
			return who.SandboxClaims(ns).Create(t.Context(), forged("created"), metav1.CreateOptions{})
		},
		"apply that creates": func() (*v1alpha1.SandboxClaim, error) {
			return who.SandboxClaims(ns).Patch(t.Context(), "applied", types.ApplyPatchType, applied("applied"), metav1.PatchOptions{FieldManager: "eve"})
		},
		"apply that updates": func() (*v1alpha1.SandboxClaim, error) {
			return who.SandboxClaims(ns).Patch(t.Context(), "mine", types.ApplyPatchType, applied("mine"),
				metav1.PatchOptions{FieldManager: "eve", Force: new(true)})
		},
		"update": func() (*v1alpha1.SandboxClaim, error) {
			claim, err := who.SandboxClaims(ns).Get(t.Context(), "mine", metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			claim.Annotations[v1alpha1.AnnotationClaimedBy] = "boss"
			return who.SandboxClaims(ns).Update(t.Context(), claim, metav1.UpdateOptions{})
		},
		"patch": func() (*v1alpha1.SandboxClaim, error) {
			return who.SandboxClaims(ns).Patch(t.Context(), "mine", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		},
		"patch of the status": func() (*v1alpha1.SandboxClaim, error) {
			return who.SandboxClaims(ns).Patch(t.Context(), "mine", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		},
		"apply of the status": func() (*v1alpha1.SandboxClaim, error) {
			return who.SandboxClaims(ns).Patch(t.Context(), "mine", types.ApplyPatchType, applied("mine"), metav1.PatchOptions{FieldManager: "eve", Force: new(true)}, "status")
		},
		"update of the status": func() (*v1alpha1.SandboxClaim, error) {
			claim, err := who.SandboxClaims(ns).Get(t.Context(), "mine", metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			claim.Annotations[v1alpha1.AnnotationClaimedBy] = "boss"
			return who.SandboxClaims(ns).UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
		},
	} {
		claim, err := do()
		if err != nil {
			t.Errorf("%s (with %s): %v", way, status, err)
			continue
		}
		if got := claim.Annotations[v1alpha1.AnnotationClaimedBy]; got != user {
			t.Errorf("%s: claimed by %q, want %q", way, got, user)
		}
		for _, entry := range claim.ManagedFields {
			if entry.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(entry.FieldsV1.GetRawString(), v1alpha1.AnnotationClaimedBy) {
				t.Errorf("%s: %s owns who claimed", way, entry.Manager)
			}
		}
	}

	// Who acts for another claims for them, and needs the right to.
	acting := plane.Config()
	acting.Impersonate = rest.ImpersonationConfig{UserName: user}
	if claim := clientsFor(t, acting).claim(t, ns, builders.Claim("for-another", 1)); claim.Annotations[v1alpha1.AnnotationClaimedBy] != user {
		t.Errorf("an admin who acts for %q: %v", user, claim.Annotations)
	}
	for i, eve := range []*clients{who, who.direct(t, 0)} {
		config := rest.CopyConfig(eve.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: "boss", Groups: []string{"system:masters"}}
		_, err := clientsFor(t, config).SandboxClaims(ns).Create(t.Context(), builders.Claim("as-boss", 1), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "impersonate") {
			t.Errorf("acting for another without the right to (%d): %v", i, err)
		}
	}
}

// TestForgedHeaders sends what the front proxy sends, without being the front
// proxy: no server believes it.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 2)
	user := uniqueUser(t, "ann")
	grant(t, ns, "sandlot-claimer", user)
	who := as(t, user)
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := who.SandboxClaims(ns).List(ctx, metav1.ListOptions{})
		return err
	})

	kept := filepath.Join(plane.Dir(), "pki", "kept")
	proxy := authority(t, kept, "front-proxy-ca")
	users := authority(t, kept, "cluster-ca")
	stranger := authority(t, t.TempDir(), "front-proxy-ca")
	certificate := func(ca *localpki.Authority, name string, groups ...string) []tls.Certificate {
		pair, err := ca.Issue(localpki.Leaf{CommonName: name, Organization: groups, Client: true})
		if err != nil {
			t.Fatal(err)
		}
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{cert}
	}
	boss := http.Header{
		"X-Remote-User": {"boss"}, "X-Remote-Uid": {"1"}, "X-Remote-Group": {"system:masters", "system:authenticated"},
		"X-Remote-Extra-Scopes": {"all"},
	}
	for name, tc := range map[string]struct {
		certs  []tls.Certificate
		header http.Header
		want   int
		by     string // who has claimed, of 201
	}{
		"no certificate":                     {header: boss, want: http.StatusUnauthorized},
		"nothing at all":                     {want: http.StatusUnauthorized},
		"a certificate of a stranger":        {certs: certificate(stranger, "front-proxy"), header: boss, want: http.StatusUnauthorized},
		"a name that is not the proxy's":     {certs: certificate(proxy, "eve"), header: boss, want: http.StatusUnauthorized},
		"the proxy's CA as that of users":    {certs: certificate(proxy, "eve", "system:masters"), want: http.StatusUnauthorized},
		"the proxy, who names nobody":        {certs: certificate(proxy, "front-proxy"), want: http.StatusUnauthorized},
		"a user named like the proxy":        {certs: certificate(users, "front-proxy"), header: boss, want: http.StatusForbidden},
		"a user without rights":              {certs: certificate(users, uniqueUser(t, "eve")), header: boss, want: http.StatusForbidden},
		"a user with rights":                 {certs: certificate(users, user), header: boss, want: http.StatusCreated, by: user},
		"a bad token":                        {header: http.Header{"Authorization": {"Bearer nonsense"}}, want: http.StatusUnauthorized},
		"a bad token, in the name of others": {header: merge(boss, http.Header{"Authorization": {"Bearer nonsense"}}), want: http.StatusUnauthorized},
		"the front proxy":                    {certs: certificate(proxy, "front-proxy"), header: boss, want: http.StatusCreated, by: "boss"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := post(t, tc.certs, tc.header, ns)
			if answer.code != tc.want || tc.by != "" && !strings.Contains(answer.body, fmt.Sprintf(`"%s":%q`, v1alpha1.AnnotationClaimedBy, tc.by)) {
				t.Errorf("got %d %s\nwant %d by %q", answer.code, answer.body, tc.want, tc.by)
			}
		})
	}
	c.checkBound(t, ns, 2)

	// Through the aggregator, which is asked to pass such headers on.
	config := rest.CopyConfig(who.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			for name, values := range boss {
				req.Header[name] = slices.Clone(values)
			}
			return next.RoundTrip(req)
		})
	})
	expect.FullPool(t, c, ns, "pool", 2)
	if claim := clientsFor(t, config).claim(t, ns, builders.Claim("through", 1)); claim.Annotations[v1alpha1.AnnotationClaimedBy] != user {
		t.Errorf("claimed by %v", claim.Annotations)
	}
}

// TestAnonymous makes sure that anonymous users are refused, on either way, even
// where a role lets all users. Only the probes of kubelets need no user.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 1)
	for _, group := range []string{"system:unauthenticated", "system:anonymous"} {
		_, err := c.kube.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "everybody-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sandlot-claimer"},
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group},
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: group},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	nobody := clientsFor(t, rest.AnonymousClientConfig(c.config))
	// kube-apiserver lets them through once it knows the role; we never do.
	expect.Eventually(t.Context(), t, func(ctx context.Context) error {
		_, err := nobody.SandboxClaims(ns).Create(ctx, builders.Claim("anonymous", 1), metav1.CreateOptions{})
		if err == nil {
			t.Fatal("nobody in particular has claimed a sandbox")
		}
		if !apierrors.IsUnauthorized(err) {
			return err
		}
		return nil
	})
	for i := range sandlot.APIServers() {
		direct := nobody.direct(t, i)
		if _, err := direct.SandboxClaims(ns).Create(t.Context(), builders.Claim("anonymous", 1), metav1.CreateOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("server %d: got %v", i, err)
		}
		client, err := rest.HTTPClientFor(direct.config)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{
			"/healthz": http.StatusOK, "/livez": http.StatusOK, "/readyz": http.StatusOK, "/readyz?verbose": http.StatusOK,
			"/livez?exclude=etcd": http.StatusOK,
			"/":                   http.StatusUnauthorized, "/version": http.StatusUnauthorized, "/metrics": http.StatusUnauthorized,
			"/apis": http.StatusUnauthorized, "/openapi/v2": http.StatusUnauthorized, "/openapi/v3": http.StatusUnauthorized,
			"/debug/pprof/": http.StatusUnauthorized, "/configz": http.StatusUnauthorized, "/readyz/etcd": http.StatusUnauthorized,
			"/apis/agents.kruise.io/v1alpha1/sandboxes?watch=true": http.StatusUnauthorized,
		} {
			response, err := get(t, client, direct.config.Host+path)
			if err != nil || response != want {
				t.Errorf("server %d: GET %s: %d, %v; want %d", i, path, response, err, want)
			}
		}
		// Metrics are for those with the role.
		user := uniqueUser(t, fmt.Sprintf("prometheus-%d", i))
		metrics, err := rest.HTTPClientFor(as(t, user).direct(t, i).config)
		if err != nil {
			t.Fatal(err)
		}
		if code, err := get(t, metrics, direct.config.Host+"/metrics"); err != nil || code != http.StatusForbidden {
			t.Errorf("server %d: GET /metrics without the role: %d, %v", i, code, err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sandlot-metrics-reader"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		if _, err := c.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.kube.RbacV1().ClusterRoleBindings().Delete(context.Background(), user, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		expect.Eventually(t.Context(), t, func(context.Context) error {
			if code, err := get(t, metrics, direct.config.Host+"/metrics"); err != nil || code != http.StatusOK {
				return fmt.Errorf("GET /metrics with the role: %d, %w", code, err)
			}
			return nil
		})
	}
	c.checkBound(t, ns, 0)
}

// answer is what came back for a request.
type answer struct {
	code int
	body string
}

// post creates a claim of one sandbox at our server itself.
func post(t testing.TB, certs []tls.Certificate, header http.Header, ns string) answer {
	t.Helper()
	direct, err := sandlot.Direct(0, plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(direct.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	target, err := url.JoinPath(direct.Host, "/apis/agents.kruise.io/v1alpha1/namespaces", ns, "sandboxclaims")
	if err != nil {
		t.Fatal(err)
	}
	body := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxClaim","metadata":{"generateName":"forged-"},"spec":{"templateName":"pool"}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = merge(header, http.Header{"Content-Type": {"application/json"}})
	response, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, string(content)}
}

func get(t testing.TB, client *http.Client, url string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}

func merge(headers ...http.Header) http.Header {
	all := http.Header{}
	for _, header := range headers {
		for name, values := range header {
			all[name] = append(all[name], values...)
		}
	}
	return all
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// authority returns the CA that is kept in a folder.
func authority(t testing.TB, dir, name string) *localpki.Authority {
	t.Helper()
	ca, err := localpki.OpenAuthority(dir, name, name, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// uniqueUser returns the name of a user whom no other test gives rights to.
func uniqueUser(t testing.TB, name string) string {
	return name + "-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ",", "", " ", "-").Replace(t.Name()))
}

// serviceAccount makes a service account and returns clients with a token of it.
func serviceAccount(t testing.TB, ns, name string) *clients {
	t.Helper()
	return serviceAccountOf(t, &site{plane, admin(t)}, ns, name)
}

func serviceAccountOf(t testing.TB, s *site, ns, name string) *clients {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.kube.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path, err := s.ServiceAccountKubeconfig(t.Context(), ns, name)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return clientsFor(t, config)
}

// uniqueRole makes a role in a namespace, grants it to a user, and returns its name.
func uniqueRole(t testing.TB, ns, user string, rules ...rbacv1.PolicyRule) string {
	t.Helper()
	rbac := admin(t).kube.RbacV1()
	role, err := rbac.Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "role-"}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rbac.RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return role.Name
}
