// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/url"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
	"github.com/sandlot-io/sandlot/pkg/testutil/load"
)

// TestClusterUnreachable takes away the way from our API servers and controllers
// to kube-apiserver for 30 seconds. Claims of a user whose rights are known continue
// as long as there is stock, through the aggregator and past it; nothing refills
// it. Afterwards everything is as it should be.
func TestClusterUnreachable(t *testing.T) {
	t.Parallel()
	const (
		pool    = 80
		outside = 30 * time.Second
		user    = "claimer"
	)
	ns := metav1.NamespaceDefault
	s := newSite(t)
	gate := newGate(t, hostOf(t, s.Config().Host))
	// The service accounts are there once Sandlot was installed, so it is installed
	// and started again, through the gate.
	if err := s.install(t, controlplane.SandlotOptions{}).Stop(); err != nil {
		t.Fatal(err)
	}
	installed := s.install(t, controlplane.SandlotOptions{
		APIServerArgs:  []string{"--kubeconfig=" + s.through(t, gate, "sandlot-apiserver")},
		ControllerArgs: []string{"--kubeconfig=" + s.through(t, gate, "sandlot-controller-manager")},
	})
	expect.FilledPool(t, s, ns, pool)
	s.allowClaims(t, ns, user)
	config, err := s.User(user)
	if err != nil {
		t.Fatal(err)
	}
	aggregated := clientsFor(t, config)
	var direct []*clients
	for i := range installed.APIServers() {
		config, err := installed.Direct(i, config)
		if err != nil {
			t.Fatal(err)
		}
		direct = append(direct, clientsFor(t, config))
	}
	// Each server learns of the user's rights by a claim.
	var all []*crowd
	for i, c := range direct {
		known := &crowd{namespace: ns, name: "known-" + string(rune('a'+i)), clients: 1, replicas: 1, each: 1}
		c.start(t, known).Finish()
		all = append(all, known)
	}
	expect.FullPool(t, s, ns, "pool", pool)

	// Controllers that lose their lease end, and are started again, as by a kubelet.
	gate.block()
	until := time.Now().Add(outside)
	// Ten claims by each way, the last ones at the end of the time.
	for i, c := range append(direct, aggregated) {
		during := &crowd{namespace: ns, name: "during-" + string(rune('a'+i)), clients: 2, replicas: 2, each: 5, pause: outside / 5}
		all = append(all, c.start(t, during))
	}
	for _, crowd := range all {
		crowd.Finish()
	}
	for _, crowd := range all {
		crowd.checkFailures(t)
		for _, answer := range crowd.Answers() {
			expect.Claimed(t, answer.Claim, int(crowd.replicas)) // from stock, so at once
		}
	}
	s.checkUnjudged(t, installed)
	letPass(t.Context(), time.Until(until))
	gate.open()

	after := &crowd{namespace: ns, name: "after", clients: 2, replicas: 1, each: 5}
	all = append(all, s.start(t, after))
	after.Finish()
	after.checkFailures(t)
	var answers []load.Answer
	for _, crowd := range all {
		answers = append(answers, crowd.Answers()...)
	}
	s.awaitCalm(t, ns, pool).check(t, answers)
}

// through returns a kubeconfig of one of our service accounts that goes through
// the gate.
func (s *site) through(t *testing.T, g *gate, serviceAccount string) string {
	t.Helper()
	path, err := s.ServiceAccountKubeconfig(t.Context(), controlplane.Namespace, serviceAccount)
	if err != nil {
		t.Fatal(err)
	}
	return g.kubeconfig(t, path)
}

// allowClaims lets a user claim in a namespace.
func (s *site) allowClaims(t *testing.T, namespace, user string) {
	t.Helper()
	_, err := s.kube.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "sandlot-claimer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func hostOf(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
