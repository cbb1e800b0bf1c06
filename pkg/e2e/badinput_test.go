// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
	"github.com/sandlot-io/sandlot/pkg/testutil/expect"
)

type object = map[string]any

// badCase is one mistake in an object that is right except for it.
type badCase struct {
	// spec and metadata are put over those of a good object; nil takes a key away.
	spec, metadata object
	// field is what the refusal has to name.
	field string
	// newOnly: it is a mistake of a new object only, or cannot be made in a patch.
	newOnly bool
	// leavesGood: it is no mistake to apply it to the good object.
	leavesGood bool
}

// TestBadInput sends what is wrong in one way or another, by every verb that
// writes, and requires a refusal that names the field, and that nothing has
// happened: nothing stored, nothing changed, nothing taken from the pool.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), "--simulated-start-delay", "10ms")
	t.Run("claims", func(t *testing.T) {
		t.Parallel()
		b := newBadInput(t, s, "claims", "SandboxClaim", object{"templateName": "pool"})
		b.runCases(t, badClaims())
	})
	t.Run("sets", func(t *testing.T) {
		t.Parallel()
		b := newBadInput(t, s, "sets", "SandboxSet", object{"replicas": 0, "template": goodTemplate()})
		b.runCases(t, badSets())
		b.runCases(t, badTemplates())
	})
	t.Run("templates", func(t *testing.T) {
		t.Parallel()
		b := newBadInput(t, s, "templates", "SandboxTemplate", object{"template": goodTemplate()})
		b.runCases(t, badTemplates())
	})
	t.Run("sandboxes", func(t *testing.T) {
		t.Parallel()
		b := newBadInput(t, s, "sandboxes", "Sandbox", object{"template": goodTemplate()})
		b.runCases(t, badSandboxes())
		b.runCases(t, badTemplates())
	})
	t.Run("requests", func(t *testing.T) {
		t.Parallel()
		testBadRequests(t, newBadInput(t, s, "requests", "SandboxClaim", object{"templateName": "pool"}))
	})
	t.Run("sizes", func(t *testing.T) {
		t.Parallel()
		testSizes(t, newBadInput(t, s, "sizes", "SandboxClaim", object{"templateName": "pool"}))
	})
	t.Run("subresources", func(t *testing.T) {
		t.Parallel()
		testBadSubresources(t, newBadInput(t, s, "subresources", "SandboxClaim", object{"templateName": "pool"}))
	})
}

const poolSize = 3

// badInput sends bad objects of one kind into a namespace that holds a full pool
// and one good object of the kind, named "good".
type badInput struct {
	*server
	namespace, kind, path string
	spec                  object
	before                map[string]string
}

func newBadInput(t *testing.T, s *server, namespace, kind string, spec object) *badInput {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	if kind == "Sandbox" {
		plural = "sandboxes"
	}
	b := &badInput{server: s, namespace: namespace, kind: kind, spec: spec, path: namespacePath + namespace + "/" + plural}
	expect.FilledPool(t, s.Client.AgentsV1alpha1(), namespace, poolSize)
	good := b.object("good", badCase{})
	if kind == "SandboxClaim" {
		good["spec"].(object)["createOnNoStock"] = false
	}
	if a := s.request(t, http.MethodPost, b.path, asJSON, encode(t, good)); a.code != http.StatusCreated {
		t.Fatalf("creating a good %s: %s", kind, a.body)
	}
	expect.FullPool(t, s.Client.AgentsV1alpha1(), namespace, "pool", poolSize)
	if kind == "SandboxSet" {
		expect.FullPool(t, s.Client.AgentsV1alpha1(), namespace, "good", 0)
	}
	if kind == "Sandbox" {
		s.awaitRunning(t, namespace, "good")
	}
	b.before = b.snapshot(t)
	return b
}

func goodTemplate() object {
	return object{"spec": object{"containers": []any{object{"name": "main", "image": "busybox:1"}}}}
}

// object returns an object with the mistake of a case in it.
func (b *badInput) object(name string, tc badCase) object {
	spec, metadata := maps.Clone(b.spec), object{"name": name}
	for target, changes := range map[string]object{"spec": tc.spec, "metadata": tc.metadata} {
		into := map[string]object{"spec": spec, "metadata": metadata}[target]
		for key, value := range changes {
			into[key] = value
			if value == nil {
				delete(into, key)
			}
		}
	}
	return object{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": b.kind, "metadata": metadata, "spec": spec}
}

func (b *badInput) runCases(t *testing.T, cases map[string]badCase) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b.runCase(t, tc)
			b.nothingHappened(t)
		})
	}
}

// runCase makes the mistake by every verb.
func (b *badInput) runCase(t *testing.T, tc badCase) {
	const fresh = "fresh"
	freshName := fresh
	if name, ok := tc.metadata["name"].(string); ok && name != "" {
		freshName = name
	}
	send := func(verb, method, path, mediaType, body string) {
		t.Helper()
		t.Run(verb, func(t *testing.T) { b.request(t, method, path, mediaType, body).refused(t, tc.field) })
	}
	created := encode(t, b.object(fresh, tc)) // JSON is YAML too
	send("create", http.MethodPost, b.path, asJSON, created)
	send("create from YAML", http.MethodPost, b.path, asYAML, created)
	send("create dry", http.MethodPost, b.path+"?dryRun=All", asJSON, created)
	if !strings.ContainsAny(freshName, "/%? ") {
		send("apply", http.MethodPatch, b.path+"/"+freshName+"?fieldManager=tester", asApply, created)
	}
	if tc.newOnly {
		return
	}
	changed := encode(t, b.object("good", tc))
	if !tc.leavesGood && !slices.Contains(slices.Collect(maps.Values(tc.spec)), any(nil)) { // what is not applied is left alone
		t.Run("apply a change", func(t *testing.T) {
			added := strings.Replace(tc.field, "containers[0]", "containers[1]", 1) // it has another name than that of the good one
			b.request(t, http.MethodPatch, b.path+"/good?fieldManager=tester&force=true", asApply, changed).refused(t, added)
		})
	}
	send("replace", http.MethodPut, b.path+"/good", asJSON, b.replacement(t, tc))
	patch := object{}
	if tc.spec != nil {
		patch["spec"] = tc.spec
	}
	if tc.metadata != nil {
		patch["metadata"] = tc.metadata
	}
	send("merge patch", http.MethodPatch, b.path+"/good", asMergePatch, encode(t, patch))
}

// replacement returns the changed good object as a client sends it that has read
// the stored one. Without a version it would be refused for that.
func (b *badInput) replacement(t *testing.T, tc badCase) string {
	t.Helper()
	changed := b.object("good", tc)
	var read metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(b.request(t, http.MethodGet, b.path+"/good", "", "").body), &read); err != nil {
		t.Fatal(err)
	}
	if metadata, ok := changed["metadata"].(object); ok {
		metadata["resourceVersion"] = read.ResourceVersion
	}
	return encode(t, changed)
}

// snapshot returns what is stored in the namespace: whole objects, but of sets
// not what their controller writes when it likes.
func (b *badInput) snapshot(t testing.TB) map[string]string {
	t.Helper()
	stored := map[string]string{}
	for _, resource := range []string{"sandboxclaims", "sandboxsets", "sandboxtemplates", "sandboxes"} {
		var list struct{ Items []object }
		a := b.request(t, http.MethodGet, namespacePath+b.namespace+"/"+resource, "", "")
		if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.code != http.StatusOK {
			t.Fatalf("listing %s: %d %v", resource, a.code, err)
		}
		for _, item := range list.Items {
			metadata := item["metadata"].(object)
			if resource == "sandboxsets" {
				delete(item, "status")
				delete(metadata, "resourceVersion")
				delete(metadata, "managedFields")
			}
			stored[fmt.Sprintf("%s/%s", resource, metadata["name"])] = encode(t, item)
		}
	}
	return stored
}

// nothingHappened requires that everything is as it was before the first bad
// request, and that the whole pool can be claimed: a sandbox that was taken from
// the index and not given back would be missing.
func (b *badInput) nothingHappened(t *testing.T) {
	t.Helper()
	after := b.snapshot(t)
	if diff := cmp.Diff(b.before, after); diff != "" {
		t.Errorf("bad input changed what is stored (-before +after):\n%s", diff)
		b.before = after // let the next case fail for itself
	}
	all := builders.Claim("all", poolSize)
	all.Spec.Allocation, all.Spec.OnShortage = v1alpha1.AllocationAllOrNothing, v1alpha1.ShortageFail
	got, err := b.Client.AgentsV1alpha1().SandboxClaims(b.namespace).Create(t.Context(), all, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || len(got.Status.Sandboxes) != poolSize {
		t.Errorf("the pool is not whole any more: %v %v", got, err)
	}
}

// testBadRequests sends what is no object of the kind at all.
func testBadRequests(t *testing.T, b *badInput) {
	good := encode(t, b.object("fresh", badCase{}))
	with := func(old, replacement string) string { return strings.Replace(good, old, replacement, 1) }
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i, i, i, i, i, i)
	}
	var labels []string
	for i := range 10_001 {
		labels = append(labels, fmt.Sprintf(`"k%d":""`, i))
	}
	many := strings.Join(labels, ",")
	deep := strings.Repeat(`{"a":`, 100000) + "1" + strings.Repeat("}", 100000)

	cases := map[string]struct {
		method, path, mediaType, body string
		code                          int
		names                         string
	}{
		"no JSON":            {http.MethodPost, "", asJSON, "{", 400, ""},
		"empty":              {http.MethodPost, "", asJSON, "", 400, ""},
		"null":               {http.MethodPost, "", asJSON, "null", 422, "metadata.name"},
		"a list":             {http.MethodPost, "", asJSON, "[]", 400, ""},
		"a string":           {http.MethodPost, "", asJSON, `"claim"`, 400, ""},
		"binary":             {http.MethodPost, "", asJSON, "\x00\xff\xfe", 400, ""},
		"no YAML":            {http.MethodPost, "", asYAML, "a: b: c", 400, ""},
		"YAML with tabs":     {http.MethodPost, "", asYAML, "apiVersion: agents.kruise.io/v1alpha1\nkind: SandboxClaim\nspec:\n\ttemplateName: pool\n", 400, ""},
		"YAML that explodes": {http.MethodPost, "", asYAML, bomb, 400, ""},
		"very deep":          {http.MethodPost, "", asJSON, with(`"spec":{`, `"spec":{"labels":`+deep+`,`), 400, ""},
		"very deep where any JSON may be": {http.MethodPost, "/../sandboxsets", asJSON,
			`{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSet","metadata":{"name":"deep"},"spec":{"replicas":0,"template":` + deep + `}}`, 400, ""},
		"no protobuf":              {http.MethodPost, "", asProtobuf, "k8s\x00garbage", 400, ""},
		"JSON as protobuf":         {http.MethodPost, "", asProtobuf, good, 400, ""},
		"protobuf as JSON":         {http.MethodPost, "", asJSON, "k8s\x00\x0a\x00", 400, ""},
		"CBOR":                     {http.MethodPost, "", "application/cbor", "\xd9\xd9\xf7\xa0", 415, ""},
		"unknown media type":       {http.MethodPost, "", "text/plain", good, 415, ""},
		"another kind":             {http.MethodPost, "", asJSON, with(`"SandboxClaim"`, `"SandboxSet"`), 400, "SandboxSet"},
		"an unknown kind":          {http.MethodPost, "", asJSON, with(`"SandboxClaim"`, `"Claim"`), 400, "Claim"},
		"another version":          {http.MethodPost, "", asJSON, with(`v1alpha1`, `v1`), 400, "agents.kruise.io/v1"},
		"another group":            {http.MethodPost, "", asJSON, with(`agents.kruise.io/v1alpha1`, `apps/v1`), 400, "apps/v1"},
		"another namespace":        {http.MethodPost, "", asJSON, with(`"name":"fresh"`, `"name":"fresh","namespace":"elsewhere"`), 400, "namespace"},
		"a resourceVersion":        {http.MethodPost, "", asJSON, with(`"name":"fresh"`, `"name":"fresh","resourceVersion":"1"`), 422, "metadata.resourceVersion"},
		"no name":                  {http.MethodPost, "", asJSON, with(`"name":"fresh"`, `"labels":{}`), 422, "metadata.name"},
		"an unknown field":         {http.MethodPost, "?fieldValidation=Strict", asJSON, with(`"spec":{`, `"spec":{"replicaz":1,`), 400, "spec.replicaz"},
		"a field twice":            {http.MethodPost, "?fieldValidation=Strict", asJSON, with(`"spec":{`, `"spec":{"templateName":"a",`), 400, "spec.templateName"},
		"unknown option":           {http.MethodPost, "?dryRun=Some", asJSON, good, 422, "dryRun"},
		"unknown field mode":       {http.MethodPost, "?fieldValidation=Sometimes", asJSON, good, 422, "fieldValidation"},
		"create by replace":        {http.MethodPut, "/fresh", asJSON, good, 404, "fresh"},
		"replace by another name":  {http.MethodPut, "/good", asJSON, good, 400, "name"},
		"replace another uid":      {http.MethodPut, "/good", asJSON, with(`"name":"fresh"`, `"name":"good","uid":"not-this"`), 409, "UID"},
		"replace an old version":   {http.MethodPut, "/good", asJSON, with(`"name":"fresh"`, `"name":"good","resourceVersion":"1"`), 409, "modified"},
		"replace no version":       {http.MethodPut, "/good", asJSON, with(`"name":"fresh"`, `"name":"good","resourceVersion":"x"`), 400, "metadata.resourceVersion"},
		"apply without manager":    {http.MethodPatch, "/fresh", asApply, good, 422, "fieldManager"},
		"apply another name":       {http.MethodPatch, "/other?fieldManager=x", asApply, good, 400, "name"},
		"apply unknown field":      {http.MethodPatch, "/fresh?fieldManager=x&fieldValidation=Strict", asApply, with(`"spec":{`, `"spec":{"replicaz":1,`), 400, "spec.replicaz"},
		"apply no YAML":            {http.MethodPatch, "/fresh?fieldManager=x", asApply, "a: b: c", 400, ""},
		"apply nothing":            {http.MethodPatch, "/fresh?fieldManager=x", asApply, "", 400, ""},
		"strategic merge patch":    {http.MethodPatch, "/good", asStrategic, `{"spec":{"ttlAfterCompleted":"2h"}}`, 415, "application/merge-patch+json"},
		"merge patch of nothing":   {http.MethodPatch, "/fresh", asMergePatch, `{"spec":{"ttlAfterCompleted":"2h"}}`, 404, "fresh"},
		"merge patch, a list":      {http.MethodPatch, "/good", asMergePatch, `[]`, 400, ""},
		"merge patch, no JSON":     {http.MethodPatch, "/good", asMergePatch, `{`, 400, ""},
		"merge patch of the name":  {http.MethodPatch, "/good", asMergePatch, `{"metadata":{"name":"other"}}`, 400, "name"},
		"JSON patch, no list":      {http.MethodPatch, "/good", asJSONPatch, `{}`, 400, ""},
		"JSON patch, bad op":       {http.MethodPatch, "/good", asJSONPatch, `[{"op":"frob","path":"/spec"}]`, 422, ""},
		"JSON patch, no such path": {http.MethodPatch, "/good", asJSONPatch, `[{"op":"replace","path":"/spec/frob/x","value":1}]`, 422, ""},
		"JSON patch, bad value":    {http.MethodPatch, "/good", asJSONPatch, `[{"op":"replace","path":"/spec/claimTimeout","value":"soon"}]`, 422, "spec.claimTimeout"},
		"JSON patch, failed test":  {http.MethodPatch, "/good", asJSONPatch, `[{"op":"test","path":"/spec/templateName","value":"x"}]`, 422, ""},
		"JSON patch, immutable":    {http.MethodPatch, "/good", asJSONPatch, `[{"op":"replace","path":"/spec/replicas","value":2}]`, 422, "spec.replicas"},
		"JSON patch, too long":     {http.MethodPatch, "/good", asJSONPatch, "[" + strings.Repeat(`{"op":"test","path":"/kind","value":"SandboxClaim"},`, 10001) + `{"op":"remove","path":"/spec"}]`, 413, ""},
		"merge patch of many":      {http.MethodPatch, "/good", asMergePatch, `{"metadata":{"labels":{` + many + `}}}`, 400, "keys and items of lists"},
		"apply of many":            {http.MethodPatch, "/fresh?fieldManager=x", asApply, with(`"name":"fresh"`, `"name":"fresh","labels":{`+many+`}`), 400, "keys and items of lists"},
		"many":                     {http.MethodPost, "", asJSON, with(`"name":"fresh"`, `"name":"fresh","labels":{`+many+`}`), 400, "keys and items of lists"},
		"unknown patch":            {http.MethodPatch, "/good", "application/frob-patch+json", `{}`, 415, ""},
		"delete another uid":       {http.MethodDelete, "/good", asJSON, `{"preconditions":{"uid":"not-this"}}`, 409, "UID"},
		"delete, bad policy":       {http.MethodDelete, "/good", asJSON, `{"propagationPolicy":"Sideways"}`, 422, "propagationPolicy"},
		"delete, no JSON":          {http.MethodDelete, "/good", asJSON, `{`, 400, ""},
		"delete all, bad field":    {http.MethodDelete, "?fieldSelector=spec.x%3D1", asJSON, "", 400, "spec.x"},
		"delete all, bad label":    {http.MethodDelete, "?labelSelector=a%20b", asJSON, "", 400, "unable to parse requirement"},
		"list, bad field":          {http.MethodGet, "?fieldSelector=spec.replicas%3D1", "", "", 400, "spec.replicas"},
		"list, bad label":          {http.MethodGet, "?labelSelector=%21%21", "", "", 400, "unable to parse requirement"},
		"list, bad continue":       {http.MethodGet, "?limit=1&continue=frob", "", "", 400, "continue"},
		"list, bad version":        {http.MethodGet, "?resourceVersion=frob", "", "", 400, "resourceVersion"},
		"list, bad match":          {http.MethodGet, "?resourceVersion=1&resourceVersionMatch=Frob", "", "", 422, "resourceVersionMatch"},
		"unknown resource":         {http.MethodGet, "/../sandboxclaimz", "", "", 404, ""},
		"unknown subresource":      {http.MethodGet, "/good/frob", "", "", 404, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := b.path + tc.path
			if up := strings.Index(path, "/sandboxclaims/../"); up >= 0 {
				path = path[:up] + path[up+len("/sandboxclaims/.."):]
			}
			a := b.request(t, tc.method, path, tc.mediaType, tc.body)
			a.refused(t, tc.names)
			if a.code != tc.code {
				t.Errorf("refused with %d, want %d:\n%s", a.code, tc.code, clip(a.body))
			}
			b.nothingHappened(t)
		})
	}
}
