// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/apiserver"
	"github.com/sandlot-io/sandlot/pkg/client"
	"github.com/sandlot-io/sandlot/pkg/client/clientset/versioned"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// asked is what an authorizer or an admission was asked.
type asked struct {
	User, Verb, Group, Version, Resource, Subresource, Namespace, Name, Kind string

	Spec   v1alpha1.SandboxClaimRuntimeAccessSpec
	DryRun bool
}

// accessWitness is the authorizer, the admission and the audit log of a server. It notes what
// they are asked about the access to runtimes.
type accessWitness struct {
	mu         sync.Mutex
	authorized []asked
	admitted   []asked
	events     []*auditinternal.Event
}

const (
	// claimer may claim, and has no right to reach runtimes.
	claimer = "claimer"
	// refusedAccess and changedAccess are the names of claims whose access admission refuses
	// and changes.
	refusedAccess, changedAccess = "refused", "changed"
)

func (w *accessWitness) option() testutil.Option {
	return testutil.WithConfig(func(c *apiserver.Config) {
		c.GenericConfig.Authorization.Authorizer = authorizer.AuthorizerFunc(w.authorize)
		c.GenericConfig.AdmissionControl = w
		c.GenericConfig.AuditBackend = w
		c.GenericConfig.AuditPolicyRuleEvaluator = policy.NewFakePolicyRuleEvaluator(auditinternal.LevelRequestResponse, nil)
	})
}

func (w *accessWitness) authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetSubresource() != "runtimeaccess" {
		return authorizer.DecisionAllow, "", nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.authorized = append(w.authorized, asked{
		User: a.GetUser().GetName(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(), Resource: a.GetResource(),
		Subresource: a.GetSubresource(), Namespace: a.GetNamespace(), Name: a.GetName(),
	})
	if a.GetUser().GetName() == claimer {
		return authorizer.DecisionNoOpinion, "no role of the test", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// Handles implements admission.Interface.
func (*accessWitness) Handles(admission.Operation) bool { return true }

// Admit implements admission.MutationInterface.
func (*accessWitness) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if access, ok := a.GetObject().(*v1alpha1.SandboxClaimRuntimeAccess); ok && a.GetName() == changedAccess {
		access.Spec.SandboxNames = []string{"other"}
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (w *accessWitness) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	access, ok := a.GetObject().(*v1alpha1.SandboxClaimRuntimeAccess)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.admitted = append(w.admitted, asked{
		User: a.GetUserInfo().GetName(), Verb: string(a.GetOperation()), Group: a.GetResource().Group, Version: a.GetResource().Version,
		Resource: a.GetResource().Resource, Subresource: a.GetSubresource(), Namespace: a.GetNamespace(), Name: a.GetName(),
		Kind: a.GetKind().String(), Spec: access.Spec, DryRun: a.IsDryRun(),
	})
	if err := a.AddAnnotation("policy.test/access", "seen"); err != nil {
		return err
	}
	if a.GetName() == refusedAccess {
		return admission.NewForbidden(a, errors.New("refused by the test"))
	}
	return nil
}

// ProcessEvents implements audit.Backend.
func (w *accessWitness) ProcessEvents(events ...*auditinternal.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, event := range events {
		if event.Stage == auditinternal.StageResponseComplete {
			w.events = append(w.events, event.DeepCopy())
		}
	}
	return true
}

// Run implements audit.Backend.
func (*accessWitness) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (*accessWitness) Shutdown() {}

// String implements audit.Backend.
func (*accessWitness) String() string { return "test" }

// taken returns what was noted, and forgets it.
func (w *accessWitness) taken() (authorized, admitted []asked, events []*auditinternal.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	authorized, admitted, events = w.authorized, w.admitted, w.events
	w.authorized, w.admitted, w.events = nil, nil, nil
	return authorized, admitted, events
}

// tokenAnswer is the answer to a create.
type tokenAnswer struct {
	code   int
	header []string
	body   string
	claim  v1alpha1.SandboxClaim
	tokens map[string]string
}

// post creates an object as a user: the admin if that is empty. path is below /apis.
func post(t *testing.T, s *testutil.Server, user, path string, object any) *tokenAnswer {
	t.Helper()
	config := rest.CopyConfig(s.Config)
	config.Impersonate.UserName = user
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/apis/"+path, strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := web.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	answer := &tokenAnswer{code: response.StatusCode, header: response.Header.Values(v1alpha1.RuntimeAccessHeader), body: string(body)}
	if response.StatusCode == http.StatusCreated {
		if err := json.Unmarshal(body, &answer.claim); err != nil {
			t.Fatal(err)
		}
	}
	if len(answer.header) > 0 {
		if err := json.Unmarshal([]byte(answer.header[0]), &answer.tokens); err != nil {
			t.Fatalf("the header is %q: %v", answer.header, err)
		}
	}
	return answer
}

const claimsPath = v1alpha1.GroupName + "/v1alpha1/namespaces/" + namespace + "/sandboxclaims"

// TestTokensInTheAnswer: a create that asks for access tokens gets those that the subresource
// tells, and takes the same right and the same admission. They are in the header alone.
func TestTokensInTheAnswer(t *testing.T) {
	w := &accessWitness{}
	s, set := stocked(t, 4, w.option())
	w.taken()
	claim := testutil.Claim(set, "", 2, nil)
	claim.GenerateName = "mine-"
	answer := post(t, s, "", claimsPath+"?runtimeAccess=true", claim)
	if answer.code != http.StatusCreated || len(answer.header) != 1 || len(answer.tokens) != 2 {
		t.Fatalf("%d, tokens %v: %s", answer.code, answer.tokens, answer.body)
	}
	authorizedHere, admittedHere, events := w.taken()
	mine := &answer.claim

	told, err := client.RuntimeAccess(t.Context(), s.Client.AgentsV1alpha1(), mine)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, one := range told {
		want[one.Name] = one.AccessToken
	}
	if diff := cmp.Diff(want, answer.tokens); diff != "" || len(want) != 2 {
		t.Errorf("the subresource tells other tokens (-subresource +answer):\n%s", diff)
	}

	authorizedThere, admittedThere, _ := w.taken()
	if len(authorizedThere) != 1 || len(admittedThere) != 1 {
		t.Fatalf("the subresource asked %+v and %+v", authorizedThere, admittedThere)
	}
	authorizedThere[0].Name = ""             // no create is authorized by name
	admittedThere[0].Spec.SandboxNames = nil // which are not known before
	if diff := cmp.Diff(authorizedThere, authorizedHere); diff != "" {
		t.Errorf("the authorizer was asked something else (-subresource +create):\n%s", diff)
	}
	if diff := cmp.Diff(admittedThere, admittedHere); diff != "" {
		t.Errorf("admission was asked something else (-subresource +create):\n%s", diff)
	}

	if len(events) != 1 {
		t.Fatalf("%d events", len(events))
	}
	for key, value := range map[string]string{
		"sandlot.io/claim": mine.Name, "sandlot.io/sandboxes": strings.Join(namesOf(mine), ","),
		"sandlot.io/runtime-access": strings.Join(namesOf(mine), ","), "policy.test/access": "seen",
	} {
		if got := events[0].Annotations[key]; got != value {
			t.Errorf("annotation %s of the event is %q, want %q", key, got, value)
		}
	}
	if events[0].ResponseObject == nil {
		t.Error("the event has no answer, in which a token could be")
	}
	event, err := json.Marshal(events[0])
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(readAll(t, s))
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"the body": answer.body, "the audit event": string(event), "the store": string(stored)} {
		for token := range maps.Values(want) {
			if strings.Contains(text, token) {
				t.Errorf("a token is in %s", what)
			}
		}
	}
}

// TestCreatesWithoutTokens: what gets no tokens, and what is refused because it may not ask
// for them, before it takes anything.
func TestCreatesWithoutTokens(t *testing.T) {
	w := &accessWitness{}
	s, set := stocked(t, 20, w.option())
	const asks = claimsPath + "?runtimeAccess=true"
	few := func(name string) *v1alpha1.SandboxClaim { return testutil.Claim(set, name, 1, nil) }
	agents := map[string]any{"metadata": map[string]any{"name": "agents"}, "spec": map[string]any{"warmPoolRef": map[string]any{"name": set.Name}}}
	tests := map[string]struct {
		user, path string
		claim      any
		code       int
		message    string
		// authorizations and admissions are how many there are for the access.
		authorizations, admissions int
	}{
		"not asked":           {path: claimsPath, claim: few("plain"), code: 201},
		"not asked, no right": {user: claimer, path: claimsPath, claim: few("plain-claimer"), code: 201},
		"another value":       {user: claimer, path: claimsPath + "?runtimeAccess=false", claim: few("false"), code: 201},
		"no right": {
			user: claimer, path: asks, claim: few("none"), code: 403,
			message: `requires the right to create sandboxclaims/runtimeaccess in the namespace \"default\"`, authorizations: 1,
		},
		"no right, dry run": {user: claimer, path: asks + "&dryRun=All", claim: few("none"), code: 403, authorizations: 1},
		"dry run":           {path: asks + "&dryRun=All", claim: few("dry"), code: 201, authorizations: 1, admissions: 1},
		"refused by admission": {
			path: asks, claim: few(refusedAccess), code: 403, message: "refused by the test", authorizations: 1, admissions: 1,
		},
		"changed by admission": {path: asks, claim: few(changedAccess), code: 201, authorizations: 1, admissions: 1},
		"too few":              {path: asks, claim: testutil.Claim(set, "few", 100, both(waits, fails)), code: 429},
		"another group": {
			path: "extensions.agents.x-k8s.io/v1beta1/namespaces/" + namespace + "/sandboxclaims?runtimeAccess=true", claim: agents, code: 201,
		},
		"many": {path: asks, claim: testutil.Claim(set, "many", v1alpha1.MaxResponseTokens+1, nil), code: 201, authorizations: 1, admissions: 1},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		tc := tests[name]
		before := readAll(t, s)
		w.taken()
		answer := post(t, s, tc.user, tc.path, tc.claim)
		authorized, admitted, events := w.taken()
		if answer.code != tc.code || len(answer.header) != 0 || !strings.Contains(answer.body, tc.message) {
			t.Errorf("%s: %d, header %v: %s", name, answer.code, answer.header, answer.body)
		}
		if len(authorized) != tc.authorizations || len(admitted) != tc.admissions {
			t.Errorf("%s: asked the authorizer %+v and admission %+v", name, authorized, admitted)
		}
		for _, event := range events {
			if told, ok := event.Annotations["sandlot.io/runtime-access"]; ok {
				t.Errorf("%s: the audit event says that tokens of %s were told", name, told)
			}
		}
		for _, one := range admitted {
			if dry := strings.Contains(tc.path, "dryRun"); one.DryRun != dry {
				t.Errorf("%s: admission was told dry run %v", name, one.DryRun)
			}
		}
		if answer.code == http.StatusCreated && !strings.Contains(tc.path, "dryRun") {
			continue
		}
		if diff := cmp.Diff(before, readAll(t, s)); diff != "" {
			t.Errorf("%s: changed the store:\n%s", name, diff)
		}
	}
}

// tripper is a function that is an http.RoundTripper.
type tripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestClientGetsTokens: the client gets tokens with its claim, and where an answer was lost
// none, which it can ask for then.
func TestClientGetsTokens(t *testing.T) {
	s, set := stocked(t, 3)
	for name, tc := range map[string]struct {
		make func(*rest.Config) (*versioned.Clientset, error)
		lose bool
		want bool
	}{
		"answered":            {make: client.NewForConfig, want: true},
		"lost":                {make: client.NewForConfig, lose: true},
		"a transport without": {make: versioned.NewForConfig},
	} {
		t.Run(name, func(t *testing.T) {
			config := rest.CopyConfig(s.Config)
			var seen []string
			lose := tc.lose
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return tripper(func(r *http.Request) (*http.Response, error) {
					seen = append(seen, r.Method+" "+r.URL.Path)
					response, err := next.RoundTrip(r)
					if err == nil && lose && r.Method == http.MethodPost {
						lose = false
						_ = response.Body.Close()
						return nil, io.ErrUnexpectedEOF
					}
					return response, err
				})
			})
			c, err := tc.make(config)
			if err != nil {
				t.Fatal(err)
			}
			tokens := map[string]string{}
			claim, err := client.ClaimAndWait(t.Context(), c.AgentsV1alpha1(), testutil.Claim(set, strings.ReplaceAll(name, " ", "-"), 1, nil), client.Options{AccessTokens: tokens})
			if err != nil {
				t.Fatal(err)
			}
			if !tc.lose && len(seen) != 1 {
				t.Errorf("it took %v", seen)
			}
			told, err := client.RuntimeAccess(t.Context(), s.Client.AgentsV1alpha1(), claim)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			if tc.want {
				want[told[0].Name] = told[0].AccessToken
			}
			if diff := cmp.Diff(want, tokens); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
		})
	}
}
