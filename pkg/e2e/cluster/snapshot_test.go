// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/http"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestSnapshotAccess: all that is stored is given to who has the right to that path, and not
// through kube-apiserver.
func TestSnapshotAccess(t *testing.T) {
	t.Parallel()
	const reader = "snapshot-reader"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: reader},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/sandlot/snapshot"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: reader},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: reader}}}
	rbac := admin(t).kube.RbacV1()
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		user    string
		groups  []string
		through bool // kube-apiserver
		want    int
	}{
		"who may":                         {user: reader, want: http.StatusOK},
		"an admin of all namespaces":      {user: "namespaces-admin", groups: []string{"system:authenticated"}, want: http.StatusForbidden},
		"who may, through kube-apiserver": {user: reader, through: true, want: http.StatusNotFound},
	} {
		config, err := plane.User(tc.user, tc.groups...)
		if err != nil {
			t.Fatal(err)
		}
		if !tc.through {
			if config, err = sandlot.Direct(0, config); err != nil {
				t.Fatal(err)
			}
		}
		if got := getStatus(t, config, "/sandlot/snapshot"); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func getStatus(t *testing.T, config *rest.Config, path string) int {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
