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

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
	"github.com/sandlot-io/sandlot/pkg/testutil"
)

// watched are the resources of one pool, in the words of both APIs, with the columns that
// are particular to each and the kind.
var watched = map[string]struct{ column, kind string }{
	agentPools:     {"Desired", "SandboxWarmPool"},
	agentTemplates: {"Age", "SandboxTemplate"},
	"/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes":                    {"Reason", "Sandbox"},
	"/apis/extensions.agents.x-k8s.io/v1alpha1/namespaces/default/sandboxwarmpools": {"Desired", "SandboxWarmPool"},
	setsPath: {"Replicas", "SandboxSet"},
}

// wireEvent is an event of a watch as it comes.
type wireEvent struct {
	Type   string
	Object json.RawMessage
}

// watchRaw begins a watch, and returns what reads its events. The answer's code is not 200 if
// it does not begin.
func (w *words) watchRaw(t *testing.T, path, query, accept string) (int, func() wireEvent) {
	t.Helper()
	resp := w.send(t, http.MethodGet, path+"?watch=1&"+query, "", accept, "")
	t.Cleanup(func() { _ = resp.Body.Close() })
	decoder := json.NewDecoder(resp.Body)
	return resp.StatusCode, func() wireEvent {
		t.Helper()
		var event wireEvent
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("%s?%s: %v", path, query, err)
		}
		return event
	}
}

// The same objects are watched in the words of each API, as objects and as tables.
func TestWatchesInWords(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	w.stock(t, 0, 1)
	for path, want := range watched {
		_, next := w.watchRaw(t, path, "timeoutSeconds=60&includeObject=Object", "application/json;as=Table;v=v1;g=meta.k8s.io")
		event := next()
		var table metav1.Table
		if err := json.Unmarshal(event.Object, &table); err != nil || event.Type != "ADDED" || table.Kind != "Table" || len(table.Rows) != 1 {
			t.Fatalf("%s: the first event is %s %s, %v", path, event.Type, event.Object, err)
		}
		if !slices.ContainsFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == want.column }) {
			t.Errorf("%s: no column %s in %v", path, want.column, table.ColumnDefinitions)
		}
		if got := kindOf(t, table.Rows[0].Object.Raw); got.GetKind() != want.kind || !strings.HasPrefix(path, "/apis/"+got.GetAPIVersion()+"/") {
			t.Errorf("%s: the row is of %s %s", path, got.GetAPIVersion(), got.GetKind())
		}

		// A bookmark has the kind of the objects it is among.
		_, next = w.watchRaw(t, path, "timeoutSeconds=60&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", contentJSON)
		event = next()
		for event.Type == "ADDED" {
			event = next()
		}
		got := kindOf(t, event.Object)
		if event.Type != "BOOKMARK" || got.GetKind() != want.kind || !strings.HasPrefix(path, "/apis/"+got.GetAPIVersion()+"/") ||
			got.GetResourceVersion() == "" || got.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("%s: the event after the objects is %s %s", path, event.Type, event.Object)
		}
	}
}

// TestWatchesOfANameInAllNamespaces: a watch of all namespaces may select a name, which is then not that
// of one object.
func TestWatchesOfANameInAllNamespaces(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	template := w.get(t, agentTemplates+"/python")
	code, next := w.watchRaw(t, "/apis/extensions.agents.x-k8s.io/v1beta1/sandboxtemplates",
		"timeoutSeconds=60&fieldSelector=metadata.name%3Dpython&resourceVersion="+template.GetResourceVersion(), contentJSON)
	if code != http.StatusOK {
		t.Fatalf("the watch is answered with %d", code)
	}
	w.must(t, http.MethodPatch, agentTemplates+"/python", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`)
	if event := next(); event.Type != "MODIFIED" || kindOf(t, event.Object).GetLabels()["a"] != "b" {
		t.Errorf("the first event is %s %s", event.Type, event.Object)
	}
}

func kindOf(t *testing.T, raw []byte) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// A version that etcd has compacted is gone in each API: clients begin anew then.
func TestCompactedInWords(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	old := w.must(t, http.MethodGet, agentPools+"/warm", contentJSON, "").GetResourceVersion()
	w.stock(t, 0, 1)
	var last *unstructured.Unstructured
	for i := range 3 {
		last = w.must(t, http.MethodPatch, agentPools+"/warm", "application/merge-patch+json", fmt.Sprintf(`{"spec":{"replicas":%d}}`, 10+i))
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: w.server.EtcdServers})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	var revision int64
	if _, err := fmt.Sscan(last.GetResourceVersion(), &revision); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	// A server that starts now has nothing in its caches of what was before.
	w.server.Stop()
	w.server = testutil.Start(t, testutil.WithEtcd(w.server.EtcdServers))
	if w.client, err = rest.HTTPClientFor(w.server.Config); err != nil {
		t.Fatal(err)
	}
	for path := range watched {
		// The last begins like the watches of SDKs, which have an event of their own.
		for _, query := range []string{"", "&fieldSelector=metadata.name%3Dwarm"} {
			code, next := w.watchRaw(t, path, "timeoutSeconds=60&resourceVersion="+old+query, contentJSON)
			if code == http.StatusGone {
				continue
			}
			event := next()
			var status metav1.Status
			if err := json.Unmarshal(event.Object, &status); err != nil || event.Type != "ERROR" || status.Code != http.StatusGone || status.Kind != "Status" {
				t.Errorf("%s%s: a watch from what is gone begins with %s %s", path, query, event.Type, event.Object)
			}
		}
		code, body := w.do(t, http.MethodGet, path+"?resourceVersionMatch=Exact&limit=1&resourceVersion="+old, contentJSON, "")
		if status := decodeStatus(t, body); code != http.StatusGone || status.Reason != metav1.StatusReasonExpired {
			t.Errorf("%s: a list of what is gone is %d %s", path, code, body)
		}
	}
}

// Warnings about a deletion are in the words of the API it is deleted in.
func TestDeletionWarningsInWords(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	w.stock(t, 0, 1)
	w.agentClaim(t, "mine")
	for _, tc := range []struct{ path, want string }{
		{agentTemplates + "/python", "these SandboxWarmPools continue with what they have of it"},
		{strings.Replace(setsPath, "sandboxsets", "sandboxtemplates", 1) + "/python", "these SandboxSets continue with what they have of it"},
		{agentPools + "/warm", "1 claimed sandboxes of SandboxWarmPool warm stay"},
		{setsPath + "/warm", "1 claimed sandboxes of SandboxSet warm stay"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.server.Config.Host+tc.path+"?dryRun=All", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := strings.Join(resp.Header.Values("Warning"), "\n"); resp.StatusCode != http.StatusOK || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %d, warnings %q, want %q", tc.path, resp.StatusCode, got, tc.want)
		}
	}
	// A claim of agent-sandbox takes its sandbox with it.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, w.server.Config.Host+agentClaims+"/mine?dryRun=All", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := resp.Header.Values("Warning"); len(got) > 0 {
		t.Errorf("deleting a claim warns of %q", got)
	}
}

// Users may set labels in the domain of agent-sandbox, where its contract lets them: on
// claims, on sandboxes of their own, on pods that they want adopted.
func TestUsersLabelsOfAgentSandbox(t *testing.T) {
	t.Parallel()
	w := startInWords(t)
	w.stock(t, 0, 1)
	const sandboxes = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
	meta := fmt.Sprintf(`{"labels":{%q:"python-client"},"annotations":{%q:"2026-09-01T12:00:00Z"},"name":"NAME"}`,
		v1alpha1.AgentLabelCreatedBy, v1alpha1.AgentKeyPrefix+"client-first-requested-at")
	for path, body := range map[string]string{
		agentClaims: `{"metadata":` + meta + `,"spec":{"warmPoolRef":{"name":"warm"}}}`,
		sandboxes:   `{"metadata":` + meta + `,"spec":{"podTemplate":` + pod + `}}`,
	} {
		name := "own-" + path[strings.LastIndex(path, "/")+1:] // a claim may have a sandbox of its own name
		made := w.must(t, http.MethodPost, path, contentJSON, strings.Replace(body, "NAME", name, 1))
		if made.GetLabels()[v1alpha1.AgentLabelCreatedBy] != "python-client" {
			t.Errorf("%s: labels %v", path, made.GetLabels())
		}
		w.must(t, http.MethodPatch, path+"/"+name, "application/merge-patch+json", fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, v1alpha1.AgentLabelAdoptable))
	}
}
