// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/apiserver/etcdquota"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

const mebibyte = 1 << 20

// withWriteLimits sets write limits and a clock that stands still, so that etcd is measured only
// when the server starts.
func withWriteLimits(limits etcdquota.Limits, clock *clocktesting.FakeClock, exempt ...string) testutil.Option {
	return testutil.WithConfig(func(c *apiserver.Config) {
		c.ExtraConfig.WriteLimits, c.ExtraConfig.Clock = limits, clock
		c.ExtraConfig.ExemptWriters = sets.New(exempt...)
	})
}

// withoutEtcdUsage makes a server assume that etcd has space.
func withoutEtcdUsage() testutil.Option {
	return withWriteLimits(etcdquota.Limits{}, clocktesting.NewFakeClock(time.Unix(1e9, 0)))
}

// sendOnce sends a request without the retries of clients.
func sendOnce(t *testing.T, s *testutil.Server, verb, path, contentType, body string) error {
	t.Helper()
	return s.Client.Discovery().RESTClient().Verb(verb).AbsPath(path).SetHeader("Content-Type", contentType).
		Param("fieldManager", "test").MaxRetries(0).Body([]byte(body)).Do(t.Context()).Error()
}

// version returns the resourceVersion of an object.
func version(t *testing.T, s *testutil.Server, path string) string {
	t.Helper()
	var object metav1.PartialObjectMetadata
	raw, err := s.Client.Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).Raw()
	if err == nil {
		err = json.Unmarshal(raw, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object.ResourceVersion
}

// exceedLimit writes to a namespace until a write is rejected, and returns the error.
func exceedLimit(t *testing.T, s *testutil.Server, namespace string) error {
	t.Helper()
	for i := range 100 {
		large := builders.LargeTemplate(fmt.Sprintf("large-%d", i))
		err := s.Client.AgentsV1alpha1().RESTClient().Post().Namespace(namespace).Resource("sandboxtemplates").
			MaxRetries(0).Body(large).Do(t.Context()).Error()
		if err != nil {
			return err
		}
	}
	t.Fatal("20 MiB were written")
	return nil
}

// specs are of objects that can be created, by resource, and changes are patches, by resource
// or subresource.
var (
	specs = map[string]string{
		"sandboxes":        `{"template":{"spec":{"containers":[{"name":"main","image":"busybox"}]}}}`,
		"sandboxclaims":    `{"templateName":"known"}`,
		"sandboxsets":      `{"replicas":1,"template":{"spec":{"containers":[{"name":"main","image":"busybox"}]}}}`,
		"sandboxtemplates": `{"template":{"spec":{"containers":[{"name":"main","image":"busybox"}]}}}`,
	}
	specsOfAgents = map[string]string{
		"sandboxes":        `{"podTemplate":{"spec":{"containers":[{"name":"main","image":"busybox"}]}}}`,
		"sandboxclaims":    `{"sandboxTemplateRef":{"name":"known"}}`,
		"sandboxwarmpools": `{"replicas":1,"sandboxTemplateRef":{"name":"known"}}`,
		"sandboxtemplates": `{"podTemplate":{"spec":{"containers":[{"name":"main","image":"busybox"}]}}}`,
	}
	changes = map[string]string{
		"":       `{"metadata":{"annotations":{"example.com/changed":"now"}}}`,
		"status": `{"status":{"observedGeneration":99,"conditions":[{"type":"Ready","status":"True","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
		"scale":  `{"spec":{"replicas":0}}`,
	}
)

// TestWritesBeyondTheLimitAreRejected checks that a namespace that has exceeded its limit cannot
// create or change objects of any kind, group and version until its bucket is refilled. Deletes and
// writes in other namespaces succeed.
func TestWritesBeyondTheLimitAreRejected(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	s := testutil.Start(t, withoutWaiting(),
		withWriteLimits(etcdquota.Limits{Namespace: etcdquota.Limit{Rate: mebibyte, Burst: 2 * mebibyte}}, clock))
	for resource, spec := range specs {
		body := fmt.Sprintf(`{"metadata":{"name":"known"},"spec":%s}`, spec)
		if err := sendOnce(t, s, "POST", "/apis/agents.kruise.io/v1alpha1/namespaces/team/"+resource, "application/json", body); err != nil {
			t.Fatalf("creating one of %s: %v", resource, err)
		}
	}
	rejection := exceedLimit(t, s, "team")
	seconds, ok := apierrors.SuggestsClientDelay(rejection)
	if !apierrors.HasStatusCause(rejection, v1alpha1.CauseWriteLimit) || !ok || seconds < 1 || !strings.Contains(rejection.Error(), "namespace team") {
		t.Errorf("the error is %v, with a delay of %d s", rejection, seconds)
	}
	requests := 0
	rejected := func(what string, err error) {
		t.Helper()
		if requests++; !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, v1alpha1.CauseWriteLimit) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, lists, err := s.Client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		known := specsOfAgents
		if strings.HasPrefix(list.GroupVersion, v1alpha1.GroupName+"/") {
			known = specs
		}
		for _, resource := range list.APIResources {
			main, sub, _ := strings.Cut(resource.Name, "/")
			spec, creatable := known[main]
			if !creatable {
				t.Errorf("the test knows no object of %s %s", list.GroupVersion, main)
			}
			path := "/apis/" + list.GroupVersion + "/namespaces/team/" + main
			if slices.Contains(resource.Verbs, "create") && sub == "" {
				body := fmt.Sprintf(`{"metadata":{"name":"new"},"spec":%s}`, spec)
				rejected("creating one of "+path, sendOnce(t, s, "POST", path, "application/json", body))
				apply := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"applied"},"spec":%s}`, list.GroupVersion, resource.Kind, spec)
				rejected("applying one of "+path, sendOnce(t, s, "PATCH", path+"/applied", "application/apply-patch+yaml", apply))
			}
			if slices.Contains(resource.Verbs, "patch") && sub != "proxy" { // which forwards it
				change, ok := changes[sub]
				if !ok {
					t.Errorf("the test knows no change of %s %s", list.GroupVersion, resource.Name)
				}
				before := version(t, s, path+"/known")
				err := sendOnce(t, s, "PATCH", strings.TrimSuffix(path+"/known/"+sub, "/"), "application/merge-patch+json", change)
				if err == nil && version(t, s, path+"/known") == before {
					continue // accepted without a change, like a status of agent-sandbox
				}
				rejected("patching "+list.GroupVersion+" "+resource.Name, err)
			}
		}
	}
	if requests < 30 {
		t.Errorf("only %d requests were rejected", requests)
	}
	if err := sendOnce(t, s, "POST", "/apis/agents.kruise.io/v1alpha1/namespaces/other/sandboxsets", "application/json",
		`{"metadata":{"name":"known"},"spec":`+specs["sandboxsets"]+`}`); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
	set := s.Client.AgentsV1alpha1().SandboxSets("team")
	foreground := metav1.DeletePropagationForeground // which writes the object
	if err := set.Delete(t.Context(), "known", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Errorf("deleting: %v", err)
	}
	clock.Step(time.Minute)
	if err := sendOnce(t, s, "PATCH", "/apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxes/known", "application/merge-patch+json", changes[""]); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// TestRepeatedDeletesAreLimited checks that in a namespace that has exceeded its limit objects of
// every kind can be deleted, one by one and together. Another delete of an object that has a
// finalizer, which would write the object again, is rejected like other writes.
func TestRepeatedDeletesAreLimited(t *testing.T) {
	t.Parallel()
	s := testutil.Start(t, withoutWaiting(), withWriteLimits(
		etcdquota.Limits{Namespace: etcdquota.Limit{Rate: mebibyte, Burst: 2 * mebibyte}}, clocktesting.NewFakeClock(time.Unix(1e9, 0))))
	const namespace = "/apis/agents.kruise.io/v1alpha1/namespaces/team/"
	for resource, spec := range specs {
		for _, name := range []string{"known", "other"} {
			body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"example.com/name":%q},"finalizers":["example.com/hold"]},"spec":%s}`, name, name, spec)
			if err := sendOnce(t, s, "POST", namespace+resource, "application/json", body); err != nil {
				t.Fatalf("creating one of %s: %v", resource, err)
			}
		}
	}
	if err := exceedLimit(t, s, "team"); !apierrors.IsTooManyRequests(err) {
		t.Fatal(err)
	}
	remove := func(path, selector, policy string) error {
		return s.Client.Discovery().RESTClient().Delete().AbsPath(namespace+path).Param("labelSelector", selector).MaxRetries(0).
			SetHeader("Content-Type", "application/json").Body(fmt.Appendf(nil, `{"propagationPolicy":%q}`, policy)).Do(t.Context()).Error()
	}
	for resource := range specs {
		for path, selector := range map[string]string{resource + "/known": "", resource: "example.com/name=other"} {
			if err := remove(path, selector, "Foreground"); err != nil {
				t.Errorf("deleting %s: %v", path, err)
			}
			if err := remove(path, selector, "Foreground"); err != nil {
				t.Errorf("deleting %s again, which changes nothing: %v", path, err)
			}
			if err := remove(path, selector, "Orphan"); !apierrors.IsTooManyRequests(err) {
				t.Errorf("deleting %s again with another policy: %v", path, err)
			}
		}
	}
}

// TestUserLimit checks that the limit of a user is for all namespaces, and that controllers are
// exempt.
func TestUserLimit(t *testing.T) {
	t.Parallel()
	limits := etcdquota.Limits{User: etcdquota.Limit{Rate: mebibyte, Burst: 2 * mebibyte}}
	s := testutil.Start(t, withWriteLimits(limits, clocktesting.NewFakeClock(time.Unix(1e9, 0)), "controller"))
	create := func(user string, i int) error {
		return s.Client.AgentsV1alpha1().RESTClient().Post().Namespace(fmt.Sprint("team-", i)).Resource("sandboxtemplates").
			SetHeader("Impersonate-User", user).SetHeader("Impersonate-Group", "system:masters").
			MaxRetries(0).Body(builders.LargeTemplate(user)).Do(t.Context()).Error()
	}
	var rejection error
	for i := range 50 {
		if err := create("controller", i); err != nil {
			t.Fatalf("a controller: %v", err)
		}
		if err := create("eve", i); err != nil {
			rejection = err
		}
	}
	if !apierrors.IsTooManyRequests(rejection) || !strings.Contains(rejection.Error(), "user eve") {
		t.Errorf("10 MiB of one user: %v", rejection)
	}
	if err := create("alice", 0); err != nil {
		t.Errorf("another user: %v", err)
	}
}

// TestClaimsCountForTheirCreator checks that the sandboxes of a claim count for its creator at the
// size at which they are stored: with the pod template, which a warm sandbox only references.
func TestClaimsCountForTheirCreator(t *testing.T) {
	t.Parallel()
	const stock = 30
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	limits := etcdquota.Limits{User: etcdquota.Limit{Rate: mebibyte, Burst: 3 * mebibyte}}
	s := testutil.Start(t, withoutWaiting(), withWriteLimits(limits, clock))
	template := builders.LargeTemplate("large")
	template, err := s.Client.AgentsV1alpha1().SandboxTemplates("team").Create(t.Context(), template, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool := s.SetOf(t, template, "pool", "", stock)
	s.Stock(t, pool, 0, stock)
	clock.Step(time.Minute) // refills what the test has used
	claim, err := s.CreateOnce(t.Context(), "team", testutil.Claim(pool, "claim", stock, waits))
	if err != nil {
		t.Fatal(err)
	}
	var rejection error
	s.AwaitClaim(t, "team", "claim", func(c *v1alpha1.SandboxClaim) string {
		claim = c
		rejection = sendOnce(t, s, "POST", "/apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxclaims", "application/json",
			`{"metadata":{"generateName":"more-"},"spec":{"templateName":"pool","onShortage":"Fail"}}`)
		if rejection == nil || !strings.Contains(rejection.Error(), "write limit") {
			return fmt.Sprint("creating another claim: ", rejection)
		}
		return ""
	})
	if !apierrors.IsTooManyRequests(rejection) {
		t.Errorf("a claim beyond the limit: %v", rejection)
	}
	if n := claim.Status.ClaimedReplicas; n == 0 || n > stock*2/3 {
		t.Errorf("%d sandboxes of 200 KiB are bound with a burst of 3 MiB", n)
	}
	for range 4 { // the claim continues as time passes
		before := claim.Status.ClaimedReplicas
		clock.Step(3 * time.Second)
		claim = s.AwaitClaim(t, "team", "claim", func(c *v1alpha1.SandboxClaim) string {
			if c.Status.ClaimedReplicas == before && before < stock {
				return "no more sandboxes are bound"
			}
			return ""
		})
	}
	if claim.Status.Phase != v1alpha1.SandboxClaimPhaseCompleted {
		t.Errorf("the claim is %s with %d sandboxes", claim.Status.Phase, claim.Status.ClaimedReplicas)
	}
}

// TestChangesOfOthersCountForNoUser checks that a user who changes the claim of another user does
// not exhaust that user's limit.
func TestChangesOfOthersCountForNoUser(t *testing.T) {
	t.Parallel()
	const held = 8
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	limits := etcdquota.Limits{User: etcdquota.Limit{Rate: 1 << 10, Burst: 3 * mebibyte}}
	s := testutil.Start(t, withWriteLimits(limits, clock))
	template, err := s.Client.AgentsV1alpha1().SandboxTemplates("team").Create(t.Context(), builders.LargeTemplate("large"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pool := s.SetOf(t, template, "pool", "", held)
	s.Stock(t, pool, 0, held)
	as := func(user, verb, path, contentType, body string) error {
		return s.Client.Discovery().RESTClient().Verb(verb).AbsPath("/apis/agents.kruise.io/v1alpha1/namespaces/team/"+path).
			SetHeader("Impersonate-User", user).SetHeader("Impersonate-Group", "system:masters").SetHeader("Content-Type", contentType).
			MaxRetries(0).Body([]byte(body)).Do(t.Context()).Error()
	}
	claim := fmt.Sprintf(`{"metadata":{"name":"claim"},"spec":{"templateName":"pool","replicas":%d}}`, held)
	if err := as("alice", "POST", "sandboxclaims", "application/json", claim); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := as("mallory", "PATCH", "sandboxclaims/claim", "application/merge-patch+json", fmt.Sprintf(`{"spec":{"labels":{"run":"r%d"}}}`, i)); err != nil {
			t.Fatal(err)
		}
		s.AwaitClaim(t, "team", "claim", func(c *v1alpha1.SandboxClaim) string {
			if c.Status.ObservedGeneration != c.Generation {
				clock.Step(time.Second) // changes of metadata are spaced
				return "the labels are not at the sandboxes"
			}
			return ""
		})
	}
	if err := as("alice", "POST", "sandboxsets", "application/json", `{"metadata":{"name":"another"},"spec":`+specs["sandboxsets"]+`}`); err != nil {
		t.Errorf("after the changes of another user: %v", err)
	}
}

// TestServerStartsOnFullEtcd checks that a server starts although etcd is full: a second server if
// it need not write, and the first one on an embedded etcd, which it recovers before it writes.
func TestServerStartsOnFullEtcd(t *testing.T) {
	t.Parallel()
	t.Run("second server", func(t *testing.T) {
		t.Parallel()
		etcd, fill := startSmall(t)
		unmaintained := testutil.WithConfig(func(c *apiserver.Config) { c.ExtraConfig.MaintainEtcd = false })
		testutil.Start(t, etcd, unmaintained)
		fill()
		s := testutil.Start(t, etcd, unmaintained)
		if err := createTemplate(t, s); err == nil {
			t.Error("a write succeeds, so this tests nothing")
		}
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		etcd, fill := startSmall(t)
		fill()
		s := testutil.Start(t, etcd, testutil.WithConfig(func(c *apiserver.Config) {
			c.ExtraConfig.MaintainEtcd, c.ExtraConfig.EmbeddedEtcd = false, true
		}))
		if err := createTemplate(t, s); err != nil {
			t.Errorf("a write: %v", err)
		}
	})
}

// createTemplate creates a small template.
func createTemplate(t *testing.T, s *testutil.Server) error {
	t.Helper()
	return sendOnce(t, s, http.MethodPost, "/apis/agents.kruise.io/v1alpha1/namespaces/team/sandboxtemplates", "application/json",
		fmt.Sprintf(`{"metadata":{"name":"small"},"spec":%s}`, specs["sandboxtemplates"]))
}

// TestServerRecoversFromFullEtcd checks that a server recovers an etcd that is full.
func TestServerRecoversFromFullEtcd(t *testing.T) {
	t.Parallel()
	etcd, fill := startSmall(t)
	s := testutil.Start(t, etcd)
	s.Template(t, "default", "before")
	fill()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		err = sendOnce(t, s, http.MethodPatch, "/apis/agents.kruise.io/v1alpha1/namespaces/default/sandboxtemplates/before", "application/merge-patch+json",
			fmt.Sprintf(`{"metadata":{"annotations":{"example.com/now":"%d"}}}`, time.Now().UnixNano()))
		if err == nil {
			return
		}
		if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
			t.Fatal(err)
		}
	}
	t.Errorf("a minute after it was full: %v", err)
}
