// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/storage/storagebackend"
)

const memberPage = `# HELP etcd_server_has_leader Whether or not a leader exists. 1 is existence, 0 is not.
# TYPE etcd_server_has_leader gauge
etcd_server_has_leader %d
# HELP grpc_server_handled_total RPCs.
# TYPE grpc_server_handled_total counter
grpc_server_handled_total{grpc_code="OK"} 7
`

// TestEtcdMetrics: the metrics of all members are one page, which says whose each is, and
// which members have not answered as they must.
func TestEtcdMetrics(t *testing.T) {
	serve := func(handler http.HandlerFunc) string {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server.URL
	}
	page := func(leader int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				t.Errorf("asked for %s", r.URL)
			}
			_, _ = fmt.Fprintf(w, memberPage, leader)
		}
	}
	inside := serve(page(1))
	servers := []string{
		serve(page(1)), serve(page(0)),
		serve(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }),
		serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("not metrics\n")) }),
		serve(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("# " + strings.Repeat("x", etcdMetricsBytes) + "\n"))
		}),
		serve(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inside, http.StatusFound) }),
	}
	handler, err := newEtcdMetrics(storagebackend.TransportConfig{ServerList: servers})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, EtcdMetricsPath, nil))
	got := answer.Body.String()
	for _, line := range []string{
		fmt.Sprintf("etcd_server_has_leader{member=%q} 1", servers[0]),
		fmt.Sprintf("etcd_server_has_leader{member=%q} 0", servers[1]),
		fmt.Sprintf(`grpc_server_handled_total{grpc_code="OK",member=%q} 7`, servers[1]),
		fmt.Sprintf("sandlot_etcd_member_up{member=%q} 1", servers[1]),
		fmt.Sprintf("sandlot_etcd_member_up{member=%q} 0", servers[2]),
		fmt.Sprintf("sandlot_etcd_member_up{member=%q} 0", servers[3]),
		fmt.Sprintf("sandlot_etcd_member_up{member=%q} 0", servers[4]),
		fmt.Sprintf("sandlot_etcd_member_up{member=%q} 0", servers[5]),
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("the page has no line %s", line)
		}
	}
	if n := strings.Count(got, "# TYPE etcd_server_has_leader"); n != 1 || t.Failed() {
		t.Errorf("%d types of a metric in:\n%s", n, got)
	}
}

// TestEtcdMemberNames: a member is called as its pod is, where that tells members apart.
func TestEtcdMemberNames(t *testing.T) {
	for _, test := range []struct{ servers, want string }{
		{"https://sandlot-etcd-0.sandlot-etcd.ns.svc:2379 https://sandlot-etcd-1.sandlot-etcd.ns.svc:2379", "sandlot-etcd-0 sandlot-etcd-1"},
		{"https://10.0.0.1:2379 https://10.0.0.2:2379", "https://10.0.0.1:2379 https://10.0.0.2:2379"},
		{"unix:///tmp/etcd/client", embeddedMember},
	} {
		m, err := newEtcdMetrics(storagebackend.TransportConfig{ServerList: strings.Fields(test.servers)})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, member := range m.members {
			names = append(names, member.name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}
