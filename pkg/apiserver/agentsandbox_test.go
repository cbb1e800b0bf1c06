// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
	"github.com/sandlot-io/sandlot/pkg/testutil/builders"
)

const (
	extensionsPath = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/"
	agentClaims    = extensionsPath + "sandboxclaims"
	agentPools     = extensionsPath + "sandboxwarmpools"
	agentTemplates = extensionsPath + "sandboxtemplates"
)

// words is a server with a template and a pool of two sandboxes, all of which are made in the
// words of agent-sandbox but the sandboxes.
type words struct {
	*conn
	dynamic dynamic.Interface
}

func startInWords(t *testing.T) *words {
	t.Helper()
	w := &words{conn: &conn{server: testutil.Start(t)}}
	var err error
	if w.client, err = rest.HTTPClientFor(w.server.Config); err != nil {
		t.Fatal(err)
	}
	if w.dynamic, err = dynamic.NewForConfig(w.server.Config); err != nil {
		t.Fatal(err)
	}
	w.must(t, http.MethodPost, agentTemplates, contentJSON, object("SandboxTemplate", "python", `{"podTemplate":`+pod+`}`))
	w.must(t, http.MethodPost, agentPools, contentJSON, object("SandboxWarmPool", "warm", `{"replicas":2,"sandboxTemplateRef":{"name":"python"}}`))
	return w
}

// stock fills the pool.
func (w *words) stock(t *testing.T, first, n int) {
	t.Helper()
	set, err := w.server.Client.AgentsV1alpha1().SandboxSets("default").Get(t.Context(), "warm", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.server.Stock(t, set, first, n)
}

func object(kind, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"extensions.agents.x-k8s.io/v1beta1","kind":%q,"metadata":{"name":%q},"spec":%s}`, kind, name, spec)
}

// must makes a request that succeeds, and returns the object that it answers.
func (w *words) must(t *testing.T, method, path, contentType, body string) *unstructured.Unstructured {
	t.Helper()
	code, answer := w.do(t, method, path, contentType, body)
	if code < 200 || code > 299 {
		t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(answer); err != nil {
		t.Fatal(err)
	}
	return obj
}

func at(t *testing.T, obj *unstructured.Unstructured, path ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldCopy(obj.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// One set of objects, in the words of two groups.
func TestWordsOfAgentSandbox(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	t.Run("what one group cannot say stays", func(t *testing.T) { testCarry(t, w) })
	t.Run("apply through two groups", func(t *testing.T) { testApplyThroughTwoGroups(t, w) })
	t.Run("scale", func(t *testing.T) { testAgentScale(t, w) })
	t.Run("scale of a sandbox", func(t *testing.T) { testSandboxScale(t, w) })
	t.Run("bad input names its field", func(t *testing.T) { testAgentBadInput(t, w) })
	t.Run("claims", func(t *testing.T) { testAgentClaims(t, w) })
	t.Run("trap 1: a watch from the version of the answer", func(t *testing.T) { testWatchFromOwnVersion(t, w) })
	t.Run("tables", func(t *testing.T) { testAgentTables(t, w) })
	t.Run("metadata", func(t *testing.T) { testAgentMetadata(t, w) })
	t.Run("discovery", func(t *testing.T) { testAgentDiscovery(t, w) })
	t.Run("what typed clients send back", func(t *testing.T) { testTypedPuts(t, w) })
	t.Run("typos in templates", func(t *testing.T) { testTemplateTypos(t, w) })
	t.Run("apply merges containers", func(t *testing.T) { testApplyMergesContainers(t, w) })
	t.Run("the templates of members are shown", func(t *testing.T) { testShownTemplates(t, w) })
	t.Run("delete collection", func(t *testing.T) { testAgentDeleteCollection(t, w) })
}

func testCarry(t *testing.T, w *words) {
	sets := w.server.Client.AgentsV1alpha1().SandboxSets("default")
	set := builders.Set("carried", 1)
	set.Spec.EmbeddedSandboxTemplate = v1alpha1.EmbeddedSandboxTemplate{TemplateRef: &v1alpha1.SandboxTemplateRef{Name: "python"}}
	set.Spec.RevisionHistoryLimit, set.Spec.MaxFreshSandboxes = new(int32(3)), new(int32(7))
	if _, err := sets.Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pool := w.must(t, http.MethodGet, agentPools+"/carried", contentJSON, "")
	if got := at(t, pool, "spec", "updateStrategy", "type"); got != "RollingUpdate" {
		t.Errorf("the pool is shown with the update strategy %v", got)
	}
	for name, change := range map[string]func() *unstructured.Unstructured{
		"update": func() *unstructured.Unstructured {
			pool := w.must(t, http.MethodGet, agentPools+"/carried", contentJSON, "") // others may have come before
			_ = unstructured.SetNestedField(pool.Object, int64(4), "spec", "replicas")
			body, _ := json.Marshal(pool.Object)
			return w.must(t, http.MethodPut, agentPools+"/carried", contentJSON, string(body))
		},
		"merge patch": func() *unstructured.Unstructured {
			return w.must(t, http.MethodPatch, agentPools+"/carried", string(types.MergePatchType), `{"spec":{"replicas":4}}`)
		},
		"status": func() *unstructured.Unstructured {
			return w.must(t, http.MethodPatch, agentPools+"/carried/status", string(types.MergePatchType), `{"status":{"readyReplicas":1}}`)
		},
		"other version": func() *unstructured.Unstructured {
			return w.must(t, http.MethodPatch, strings.Replace(agentPools, "v1beta1", "v1alpha1", 1)+"/carried", string(types.MergePatchType), `{"spec":{"replicas":5}}`)
		},
	} {
		change()
		stored, err := sets.Get(t.Context(), "carried", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := set.Spec.DeepCopy()
		want.Replicas, want.UpdateStrategy = stored.Spec.Replicas, stored.Spec.UpdateStrategy
		if diff := cmp.Diff(*want, stored.Spec); diff != "" || *stored.Spec.Replicas < 1 || stored.Spec.UpdateStrategy.Type != "" {
			t.Errorf("%s: strategy %q, (-want +got)\n%s", name, stored.Spec.UpdateStrategy.Type, diff)
		}
	}
}

// Managers of both groups share the ownership of a field, and keep what they own alone.
func testApplyThroughTwoGroups(t *testing.T, w *words) {
	apply := func(path, manager, body string) (int, []byte) {
		return w.do(t, http.MethodPatch, path+"/applied?fieldManager="+manager, string(types.ApplyYAMLPatchType), body)
	}
	inSets := `{"apiVersion":"agents.kruise.io/v1alpha1","kind":"SandboxSet","metadata":{"name":"applied"},` +
		`"spec":{"replicas":1,"templateRef":{"name":"python"},"revisionHistoryLimit":3,"scaleStrategy":{"burst":2}}}`
	if code, body := apply(setsPath, "sets", inSets); code != http.StatusCreated {
		t.Fatalf("applying a set: %d %s", code, body)
	}
	pool := object("SandboxWarmPool", "applied", `{"replicas":%d,"sandboxTemplateRef":{"name":"python"},"updateStrategy":{"type":"Recreate"}}`)
	if code, body := apply(agentPools, "pools", fmt.Sprintf(pool, 2)); code != http.StatusConflict || !strings.Contains(string(body), `sets`) || !strings.Contains(string(body), ".spec.replicas") {
		t.Errorf("another size through the other group: %d %s; want a conflict with the manager of the set", code, body)
	}
	if code, body := apply(agentPools, "pools", fmt.Sprintf(pool, 1)); code != http.StatusOK {
		t.Fatalf("applying the pool: %d %s", code, body)
	}
	if code, body := apply(setsPath, "sets", strings.Replace(inSets, `"replicas":1`, `"replicas":3`, 1)); code != http.StatusConflict || !strings.Contains(string(body), `pools`) {
		t.Errorf("another size of the set: %d %s; want a conflict with the manager of the pool", code, body)
	}
	set, err := w.server.Client.AgentsV1alpha1().SandboxSets("default").Get(t.Context(), "applied", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if set.Spec.ScaleStrategy.Burst == nil || *set.Spec.ScaleStrategy.Burst != 2 || set.Spec.UpdateStrategy.Type != v1alpha1.SetUpdateRecreate {
		t.Errorf("the set is %+v: what either group has applied is lost", set.Spec)
	}
	for _, entry := range set.ManagedFields {
		owned := entry.FieldsV1.GetRawString()
		if entry.Manager == "sets" && (!strings.Contains(owned, "f:burst") || !strings.Contains(owned, "f:revisionHistoryLimit")) {
			t.Errorf("the manager of the set has lost fields: %s", owned)
		}
	}
	// What a manager leaves out goes, also after another one wrote through the other group.
	if code, body := apply(setsPath, "sets", strings.Replace(inSets, `"revisionHistoryLimit":3,`, "", 1)); code != http.StatusOK {
		t.Fatalf("applying less: %d %s", code, body)
	}
	if set, err = w.server.Client.AgentsV1alpha1().SandboxSets("default").Get(t.Context(), "applied", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if set.Spec.RevisionHistoryLimit != nil || set.Spec.ScaleStrategy.Burst == nil {
		t.Errorf("after applying less the set is %+v", set.Spec)
	}
}

func testAgentScale(t *testing.T, w *words) {
	scale := w.must(t, http.MethodPatch, agentPools+"/warm/scale", string(types.MergePatchType), `{"spec":{"replicas":3}}`)
	if got := at(t, scale, "spec", "replicas"); got != int64(3) {
		t.Errorf("the scale has %v replicas", got)
	}
	want := v1alpha1.AgentLabelPool + "=" + v1alpha1.NameHash("warm")
	if got := at(t, scale, "status", "selector"); got != want {
		t.Errorf("selector %v, want %s", got, want)
	}
	pool := w.must(t, http.MethodGet, agentPools+"/warm", contentJSON, "")
	if got := at(t, pool, "spec", "replicas"); got != int64(3) {
		t.Errorf("the pool has %v replicas", got)
	}
	code, body := w.do(t, http.MethodGet, agentPools+"/absent/scale", contentJSON, "")
	if status := decodeStatus(t, body); code != http.StatusNotFound || status.Details.Group != v1alpha1.ExtensionsGroup {
		t.Errorf("%d %s", code, body)
	}
}

func testAgentBadInput(t *testing.T, w *words) {
	claim := func(spec string) string { return object("SandboxClaim", "bad", spec) }
	for name, tc := range map[string]struct {
		method, path, contentType, body string
		code                            int
		want                            string
	}{
		"no pool":        {http.MethodPost, agentClaims, contentJSON, claim(`{}`), 422, "SandboxClaim.extensions.agents.x-k8s.io \"bad\" is invalid: spec.warmPoolRef.name: Required value"},
		"empty pool":     {http.MethodPost, agentClaims, contentJSON, claim(`{"warmPoolRef":{"name":""}}`), 422, "spec.warmPoolRef.name: Required value"},
		"negative TTL":   {http.MethodPost, agentClaims, contentJSON, claim(`{"warmPoolRef":{"name":"a"},"lifecycle":{"ttlSecondsAfterFinished":-1}}`), 422, "spec.lifecycle.ttlSecondsAfterFinished: Invalid value: -1"},
		"policy":         {http.MethodPost, agentClaims, contentJSON, claim(`{"warmPoolRef":{"name":"a"},"lifecycle":{"shutdownPolicy":"Explode"}}`), 422, "spec.lifecycle.shutdownPolicy: Unsupported value"},
		"type":           {http.MethodPost, agentClaims, contentJSON, claim(`{"warmPoolRef":"a"}`), 400, `spec.warmPoolRef: Invalid value: "a": must be an object`},
		"negative size":  {http.MethodPost, agentPools, contentJSON, object("SandboxWarmPool", "bad", `{"replicas":-1,"sandboxTemplateRef":{"name":"python"}}`), 422, "spec.replicas: Invalid value: -1"},
		"no template":    {http.MethodPost, agentPools, contentJSON, object("SandboxWarmPool", "bad", `{}`), 422, "spec.sandboxTemplateRef.name: Required value"},
		"update type":    {http.MethodPost, agentPools, contentJSON, object("SandboxWarmPool", "bad", `{"sandboxTemplateRef":{"name":"python"},"updateStrategy":{"type":"Later"}}`), 422, "spec.updateStrategy.type: Unsupported value"},
		"pod template":   {http.MethodPost, agentTemplates, contentJSON, object("SandboxTemplate", "bad", `{"podTemplate":{"spec":{"containers":[]}}}`), 422, "spec.podTemplate.spec.containers: Required value"},
		"merge patch":    {http.MethodPatch, agentPools + "/warm", string(types.MergePatchType), `{"spec":{"replicas":"x"}}`, 400, "spec.replicas: Invalid value: \"x\": must be an integer"},
		"strategic":      {http.MethodPatch, agentPools + "/warm", string(types.StrategicMergePatchType), `{}`, 415, "the body of the request was in an unknown format"},
		"applied":        {http.MethodPatch, agentPools + "/a?fieldManager=m", string(types.ApplyYAMLPatchType), object("SandboxWarmPool", "a", `{"frobs":1}`), 400, `unknown field "spec.frobs"`},
		"already exists": {http.MethodPost, agentPools, contentJSON, object("SandboxWarmPool", "warm", `{"sandboxTemplateRef":{"name":"python"}}`), 409, `sandboxwarmpools.extensions.agents.x-k8s.io "warm" already exists`},
		"not found":      {http.MethodGet, agentClaims + "/absent", contentJSON, "", 404, `sandboxclaims.extensions.agents.x-k8s.io "absent" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := w.do(t, tc.method, tc.path, tc.contentType, tc.body)
			if status := decodeStatus(t, body); code != tc.code || !strings.Contains(status.Message, tc.want) {
				t.Errorf("%d %q\nwant %d %q", code, status.Message, tc.code, tc.want)
			}
		})
	}
}

// agentClaim creates a claim of the older form, and returns the answer.
func (w *words) agentClaim(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return w.must(t, http.MethodPost, agentClaims, contentJSON, object("SandboxClaim", name, `{"sandboxTemplateRef":{"name":"python"}}`))
}

func testAgentClaims(t *testing.T, w *words) {
	w.stock(t, 0, 1)
	forged := fmt.Sprintf(`{"metadata":{"name":"forged","annotations":{%q:"","sandlot.io/claimed-by":"mallory"}},"spec":{"sandboxTemplateRef":{"name":"python"}}}`, v1alpha1.AnnotationAPI)
	created := w.must(t, http.MethodPost, agentClaims+"?dryRun=All", contentJSON, forged)
	if created.GetAnnotations()[v1alpha1.AnnotationAPI] != v1alpha1.AgentsGroup || created.GetAnnotations()[v1alpha1.AnnotationClaimedBy] == "mallory" {
		t.Errorf("annotations are %v", created.GetAnnotations())
	}
	w.agentClaim(t, "mine")
	claims := w.server.Client.AgentsV1alpha1().SandboxClaims("default")
	claim, err := claims.Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec := &claim.Spec
	if *spec.Replicas != 1 || spec.ReclaimPolicy != v1alpha1.ReclaimDelete || spec.TTLAfterCompleted.Duration >= 0 || !*spec.CreateOnNoStock || !spec.SkipInitRuntime || !v1alpha1.OfAgentSandbox(claim) {
		t.Errorf("the claim is stored as %+v", spec)
	}
	// No write of a client takes the mark away, in whatever group, nor gives it.
	unmark := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationAPI)
	for _, path := range []string{agentClaims, claimsPath, agentClaims, claimsPath} {
		patched := w.must(t, http.MethodPatch, path+"/mine", string(types.MergePatchType), unmark)
		if patched.GetAnnotations()[v1alpha1.AnnotationAPI] != v1alpha1.AgentsGroup {
			t.Errorf("%s takes the mark away", path)
		}
	}
	mark := fmt.Sprintf(`{"metadata":{"name":"ours","annotations":{%q:%q}},"spec":{"sandboxTemplateRef":{"name":"python"}}}`, v1alpha1.AnnotationAPI, v1alpha1.AgentsGroup)
	if ours := w.must(t, http.MethodPost, claimsPath+"?dryRun=All", contentJSON, mark); ours.GetAnnotations()[v1alpha1.AnnotationAPI] != "" {
		t.Error("a client gives the mark to a claim of our group")
	}
	// What it asks for may be changed at any time.
	w.must(t, http.MethodPatch, agentClaims+"/mine", string(types.MergePatchType), `{"spec":{"warmPoolRef":{"name":"other"},"env":[{"name":"A","value":"b"},{"name":"A","value":"c"}]}}`)
	// Typed clients of the current schema drop the older fields.
	for code := http.StatusConflict; code == http.StatusConflict; { // the server may write as well
		lost := w.must(t, http.MethodGet, agentClaims+"/mine", contentJSON, "")
		unstructured.RemoveNestedField(lost.Object, "spec", "sandboxTemplateRef")
		unstructured.RemoveNestedField(lost.Object, "spec", "warmpool")
		_ = unstructured.SetNestedField(lost.Object, "", "spec", "warmPoolRef", "name")
		body, _ := json.Marshal(lost.Object)
		var answer []byte
		if code, answer = w.do(t, http.MethodPut, agentClaims+"/mine", contentJSON, string(body)); code != http.StatusOK && code != http.StatusConflict {
			t.Fatalf("%d %s", code, answer)
		}
	}
	kept := w.must(t, http.MethodGet, agentClaims+"/mine", contentJSON, "")
	if at(t, kept, "spec", "warmPoolRef", "name") != "other" || at(t, kept, "spec", "sandboxTemplateRef", "name") != "python" {
		t.Errorf("the claim has lost where its sandbox comes from: %v", kept.Object["spec"])
	}
}

// The Python SDK ignores what a create answers, and watches from its resourceVersion.
func testWatchFromOwnVersion(t *testing.T, w *words) {
	w.stock(t, 10, 2)
	claims := w.dynamic.Resource(schema.GroupVersionResource{Group: v1alpha1.ExtensionsGroup, Version: "v1beta1", Resource: "sandboxclaims"}).Namespace("default")
	created := w.agentClaim(t, "watched")
	version, named := created.GetResourceVersion(), fields.OneTermEqualSelector("metadata.name", "watched").String()

	first := func(options metav1.ListOptions) *watch.Event {
		t.Helper()
		events, err := claims.Watch(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		event := <-events.ResultChan()
		return &event
	}
	for name, options := range map[string]metav1.ListOptions{
		"own version": {FieldSelector: named, ResourceVersion: version},
		"zero":        {FieldSelector: named, ResourceVersion: "0"},
		"unset":       {FieldSelector: named},
	} {
		event := first(options)
		if got, ok := event.Object.(*unstructured.Unstructured); event.Type != watch.Added || !ok || got.GetName() != "watched" || got.GetKind() != "SandboxClaim" {
			t.Errorf("%s: the first event is %s %v", name, event.Type, event.Object)
		}
	}
	// A change is sent after that, or instead of it, and once.
	changed := w.must(t, http.MethodPatch, agentClaims+"/watched", string(types.MergePatchType), `{"metadata":{"labels":{"a":"b"}}}`)
	later, err := claims.Watch(t.Context(), metav1.ListOptions{FieldSelector: named, ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	for event := range later.ResultChan() {
		if got := event.Object.(*unstructured.Unstructured).GetResourceVersion(); got == changed.GetResourceVersion() {
			if event.Type != watch.Modified {
				t.Errorf("the change is told of as %s", event.Type)
			}
			break
		}
	}
	later.Stop()
	// What the selector does not match is not sent, nor is it in our group. The next
	// event, of another change, is the first then.
	for name, from := range map[string]struct {
		resource schema.GroupVersionResource
		labels   string
	}{
		"labels":    {schema.GroupVersionResource{Group: v1alpha1.ExtensionsGroup, Version: "v1beta1", Resource: "sandboxclaims"}, "a=c"},
		"our group": {v1alpha1.SchemeGroupVersion.WithResource("sandboxclaims"), "a"},
	} {
		now := w.must(t, http.MethodPatch, agentClaims+"/watched", string(types.MergePatchType), `{"metadata":{"labels":{"a":"b"}}}`)
		events, err := w.dynamic.Resource(from.resource).Namespace("default").Watch(t.Context(),
			metav1.ListOptions{FieldSelector: named, LabelSelector: from.labels, ResourceVersion: now.GetResourceVersion()})
		if err != nil {
			t.Fatal(err)
		}
		later := w.must(t, http.MethodPatch, agentClaims+"/watched", string(types.MergePatchType), `{"metadata":{"labels":{"a":"c"}}}`)
		if event := <-events.ResultChan(); event.Object.(*unstructured.Unstructured).GetResourceVersion() != later.GetResourceVersion() {
			t.Errorf("%s: the first event is %s %v", name, event.Type, event.Object)
		}
		events.Stop()
	}
	// A version that is gone is gone, and a bookmark comes to who asks for it.
	sendInitial := true
	events, err := claims.Watch(t.Context(), metav1.ListOptions{FieldSelector: named, SendInitialEvents: &sendInitial,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	var seen []watch.EventType
	for event := range events.ResultChan() {
		if seen = append(seen, event.Type); event.Type == watch.Bookmark {
			break
		}
	}
	if !slices.Equal(seen, []watch.EventType{watch.Added, watch.Bookmark}) {
		t.Errorf("the events are %v, want the claim once and a bookmark", seen)
	}
}

func testAgentTables(t *testing.T, w *words) {
	for resource, want := range map[string][]string{
		agentClaims:    {"Name", "Ready", "Sandbox", "Reason", "Age"},
		agentTemplates: {"Name", "Age"},
		agentPools:     {"Name", "Ready", "Desired", "Age", "Reason", "Message"},
		"/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes": {"Name", "Ready", "Reason", "Age"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.Config.Host+resource+"?includeObject=Object", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		table := metav1.Table{}
		err = json.NewDecoder(resp.Body).Decode(&table)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, column := range table.ColumnDefinitions {
			got = append(got, column.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the columns %v, want %v", resource, got, want)
		}
		if len(table.Rows) == 0 {
			t.Errorf("%s has no rows", resource)
			continue
		}
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(table.Rows[0].Object.Raw, &object.Object); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(resource, "/apis/"+object.GetAPIVersion()+"/") {
			t.Errorf("an object in the table of %s is of %s", resource, object.GetAPIVersion())
		}
	}
}

func testAgentMetadata(t *testing.T, w *words) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.Config.Host+agentPools, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	list := metav1.PartialObjectMetadataList{}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.Items, func(item metav1.PartialObjectMetadata) bool { return item.Name == "warm" && item.UID != "" }) {
		t.Errorf("the metadata of pools is %+v", list.Items)
	}
	generated := w.must(t, http.MethodPost, agentPools+"?dryRun=All", contentJSON,
		`{"metadata":{"generateName":"warm-"},"spec":{"sandboxTemplateRef":{"name":"python"}}}`)
	if name := generated.GetName(); !strings.HasPrefix(name, "warm-") || at(t, generated, "spec", "replicas") != int64(1) || at(t, generated, "spec", "updateStrategy", "type") != "OnReplenish" {
		t.Errorf("the pool is %v", generated.Object)
	}
}

func testAgentDiscovery(t *testing.T, w *words) {
	found := map[string][]string{}
	singular := map[string]string{}
	for _, version := range v1alpha1.ServedVersions {
		list, err := w.server.Client.Discovery().ServerResourcesForGroupVersion(version.String())
		if err != nil {
			t.Fatal(err)
		}
		// kubectl takes a name for a singular first, whichever group has it.
		for _, resource := range list.APIResources {
			if other := singular[resource.SingularName]; resource.SingularName != "" && other != "" && other != version.Group {
				t.Errorf("%s and %s both have the singular %s", other, version.Group, resource.SingularName)
			}
			singular[resource.SingularName] = version.Group
		}
		if version == v1alpha1.SchemeGroupVersion {
			continue
		}
		for _, resource := range list.APIResources {
			found[version.String()] = append(found[version.String()], resource.Name)
			if len(resource.Categories) > 0 {
				t.Errorf("%s is in the categories %v, where it is listed already", resource.Name, resource.Categories)
			}
			if resource.Name == "sandboxwarmpools" && (resource.Kind != "SandboxWarmPool" || resource.SingularName != "sandboxwarmpool" || !slices.Equal(resource.ShortNames, []string{"swp"})) {
				t.Errorf("warm pools are found as %+v", resource)
			}
		}
		slices.Sort(found[version.String()])
	}
	extensions := []string{"sandboxclaims", "sandboxclaims/status", "sandboxtemplates", "sandboxwarmpools", "sandboxwarmpools/scale", "sandboxwarmpools/status"}
	sandboxes := []string{"sandboxes", "sandboxes/status"}
	want := map[string][]string{
		"extensions.agents.x-k8s.io/v1beta1": extensions, "extensions.agents.x-k8s.io/v1alpha1": extensions,
		"agents.x-k8s.io/v1beta1": sandboxes, "agents.x-k8s.io/v1alpha1": {"sandboxes", "sandboxes/scale", "sandboxes/status"},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func testAgentDeleteCollection(t *testing.T, w *words) {
	w.must(t, http.MethodPost, agentPools, contentJSON,
		`{"metadata":{"name":"gone","labels":{"del":"me"}},"spec":{"replicas":0,"sandboxTemplateRef":{"name":"python"}}}`)
	w.must(t, http.MethodDelete, agentPools+"?labelSelector=del=me", contentJSON, `{"kind":"DeleteOptions","apiVersion":"v1"}`)
	if code, body := w.do(t, http.MethodGet, setsPath+"/gone", contentJSON, ""); code != http.StatusNotFound {
		t.Errorf("the set is still there: %d %s", code, body)
	}
}
