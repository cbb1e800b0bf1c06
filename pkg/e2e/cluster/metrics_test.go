// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
	"github.com/sandlot-io/sandlot/pkg/testutil/runtimetest"
)

// scraper returns clients with the token of a service account of a namespace that may read
// metrics.
func scraper(t *testing.T, ns string) *clients {
	t.Helper()
	return scraperOf(t, &site{plane, admin(t)}, ns)
}

func scraperOf(t *testing.T, s *site, ns string) *clients {
	t.Helper()
	c := serviceAccountOf(t, s, ns, "scraper")
	bindings := s.kube.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sandlot-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "scraper"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, bindings.Delete, ns+"-scraper")
	return c
}

// getPage returns the status and the text of a page of a server.
func getPage(ctx context.Context, config *rest.Config, path string) (int, string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// TestMetricsNeedARight: metrics of each program, and of etcd by way of the API server, are
// for who may read that path in the cluster, whatever network they are on.
func TestMetricsNeedARight(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	reader, stranger := scraper(t, ns).config, serviceAccount(t, ns, "stranger").config
	bin := t.TempDir()
	if err := program.Build(bin, "sandlot-gateway"); err != nil {
		t.Fatal(err)
	}
	gateway := newE2BGateways(t, bin, runtimetest.Start(t).CIDR()).start(t)
	pages := map[string]struct {
		at   func(*rest.Config) (*rest.Config, error)
		path string
		want string
	}{
		"sandlot-controller-manager": {sandlot.Metrics, "/metrics", "sandlot_build_info{"},
		"sandlot-apiserver":          {func(c *rest.Config) (*rest.Config, error) { return sandlot.Direct(0, c) }, "/metrics", "sandlot_build_info{"},
		"etcd": {func(c *rest.Config) (*rest.Config, error) { return sandlot.Direct(1, c) }, "/metrics/etcd",
			`etcd_server_has_leader{member="localhost"} 1`},
		"sandlot-gateway": {gateway.metrics, "/metrics", "sandlot_build_info{"},
	}
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			for who, user := range map[string]struct {
				config *rest.Config
				code   int
			}{
				"no token":          {rest.AnonymousClientConfig(reader), http.StatusUnauthorized},
				"a token, no right": {stranger, http.StatusForbidden},
				"a forged token":    {withToken(reader, "forged"), http.StatusUnauthorized},
				"the right":         {reader, http.StatusOK},
			} {
				config, err := page.at(user.config)
				if err != nil {
					t.Fatal(err)
				}
				expect.Eventually(t.Context(), t, func(ctx context.Context) error { // a binding takes a moment to be known
					code, text, err := getPage(ctx, config, page.path)
					if err == nil && (code != user.code || strings.Contains(text, page.want) != (user.code == http.StatusOK)) {
						err = fmt.Errorf("%s: %d, want %d with %s: %.2000s", who, code, user.code, page.want, text)
					}
					return err
				})
			}
		})
	}
}

func withToken(config *rest.Config, token string) *rest.Config {
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token
	return config
}
