// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

// TestDecisionsAreRemembered makes sure that neither the claims of a user nor the
// work of the controllers ask the cluster each time who may do it: one question is
// for all sandboxes, whatever their names.
func TestDecisionsAreRemembered(t *testing.T) {
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 10)
	user := uniqueUser(t, "ann")
	grant(t, ns, "sandlot-claimer", user)
	who := as(t, user)
	for i := range sandlot.APIServers() { // which both are asked once
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			direct := who.direct(t, i)
			if _, err := direct.SandboxClaims(ns).Create(ctx, builders.Claim("dry", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				return err
			}
			_, err := direct.Sandboxes(ns).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	round := func(name string, claims int) {
		t.Helper()
		for i := range claims {
			claim := builders.Claim(fmt.Sprintf("%s-%d", name, i), 1)
			claim.Spec.ClaimTimeout = &metav1.Duration{Duration: expect.Patience}
			created, err := who.SandboxClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, sandbox := range created.Status.Sandboxes {
				if _, err := who.Sandboxes(ns).Get(t.Context(), sandbox.Name, metav1.GetOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		expect.FullPool(t, c, ns, "pool", 10)
	}
	// What users and controllers do for a claim is asked once a server and namespace.
	round("first", 20)
	before := len(reviewsIn(t, ns))
	if before == 0 {
		t.Fatal("nothing was asked, not even whether the user may claim")
	}
	const claims = 40
	round("second", claims)
	// Who reads objects of many names asks twice a server at most, once for list and
	// once for get.
	asked := reviewsIn(t, ns)[before:]
	t.Logf("%d reviews for %d claims and as many new sandboxes", len(asked), claims)
	if len(asked) > claims/2 {
		t.Errorf("want %d at most:\n%s", claims/2, strings.Join(asked, "\n"))
	}
}

// TestClaimsWithoutTheCluster claims at our servers while there is no
// kube-apiserver: a warm claim needs nothing of it that is not remembered.
func TestClaimsWithoutTheCluster(t *testing.T) {
	c, ns := admin(t), namespace(t)
	expect.FilledPool(t, c, ns, 4)
	user := uniqueUser(t, "ann")
	grant(t, ns, "sandlot-claimer", user)
	var servers []*clients
	for i := range sandlot.APIServers() {
		direct := as(t, user).direct(t, i)
		servers = append(servers, direct)
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := direct.SandboxClaims(ns).Create(ctx, builders.Claim("dry", 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	}
	if err := plane.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), expect.Patience)
		defer cancel()
		if err := plane.APIServer().Start(ctx); err != nil {
			t.Fatal(err)
		}
		expect.Eventually(t.Context(), t, func(ctx context.Context) error {
			_, err := c.SandboxClaims(ns).List(ctx, metav1.ListOptions{})
			return err
		})
		expect.FullPool(t, c, ns, "pool", 4)
	}()
	for i, server := range servers {
		server.claim(t, ns, builders.Claim(fmt.Sprintf("claim-%d", i), 2))
	}
	// Of those who were never asked about, nothing is known now: they do not get in.
	stranger := as(t, uniqueUser(t, "stranger")).direct(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	_, err := stranger.SandboxClaims(ns).Patch(ctx, "claim-0", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	if err == nil {
		t.Error("somebody of whom nothing is known got in")
	}
}

// reviewsIn returns what has been asked of who may do what in a namespace, and in no
// other: that is what the tests beside this one are asked about.
func reviewsIn(t testing.TB, namespace string) []string {
	t.Helper()
	var asked []string
	of := []byte(`"namespace":` + strconv.Quote(namespace))
	for _, path := range withRotated(t, []string{plane.AuditLog()}) {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if !bytes.Contains(lines.Bytes(), of) {
				continue
			}
			var event auditv1.Event
			if json.Unmarshal(lines.Bytes(), &event) != nil { // the last line is still being written
				continue
			}
			if event.ObjectRef == nil || event.ObjectRef.Resource != "subjectaccessreviews" || event.RequestObject == nil {
				continue
			}
			var review authorizationv1.SubjectAccessReview
			if err := json.Unmarshal(event.RequestObject.Raw, &review); err != nil {
				t.Fatalf("%s: %v", lines.Bytes(), err)
			}
			if attributes := review.Spec.ResourceAttributes; attributes != nil && attributes.Namespace == namespace {
				asked = append(asked, fmt.Sprintf("%s: %s %s/%s %s", review.Spec.User, attributes.Verb, attributes.Resource, attributes.Subresource, attributes.Name))
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return asked
}
