// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var (
	tooLongName  = strings.Repeat("a", 254)
	tooLongLabel = strings.Repeat("a", 64)
)

// badMetadata are mistakes that can be made in every kind.
func badMetadata() map[string]badCase {
	cases := map[string]badCase{
		"label key":            {metadata: object{"labels": object{"a b": "x"}}, field: "metadata.labels"},
		"label value":          {metadata: object{"labels": object{"a": "x y"}}, field: "metadata.labels"},
		"label too long":       {metadata: object{"labels": object{"a": tooLongLabel}}, field: "metadata.labels"},
		"label of a type":      {metadata: object{"labels": object{"a": 1}}, field: "metadata.labels"},
		"annotation key":       {metadata: object{"annotations": object{"a/b/c": "x"}}, field: "metadata.annotations"},
		"annotations too long": {metadata: object{"annotations": object{"a": strings.Repeat("x", 300<<10)}}, field: "metadata.annotations"},
		"finalizer":            {metadata: object{"finalizers": []any{"a b"}}, field: "metadata.finalizers"},
		"owner without uid": {
			metadata: object{"ownerReferences": []any{object{"apiVersion": "v1", "kind": "Pod", "name": "x"}}},
			field:    "metadata.ownerReferences[0].uid",
		},
		"deletion time":  {metadata: object{"deletionTimestamp": "never"}, field: "metadata.deletionTimestamp"},
		"metadata field": {metadata: object{"generation": "x"}, field: "metadata.generation"},
		"name too long":  {metadata: object{"name": tooLongName}, field: "name", newOnly: true},
		"name of a type": {metadata: object{"name": 5}, field: "metadata.name", newOnly: true},
		"generated name": {metadata: object{"name": nil, "generateName": "A B"}, field: "name", newOnly: true},
	}
	for _, name := range []string{"Upper", "a_b", "-a", "a-", "a..b", "a/b", "..", "a b", "ä"} {
		cases["name "+name] = badCase{metadata: object{"name": name}, field: "name", newOnly: true}
	}
	return cases
}

func badClaims() map[string]badCase {
	cases := badMetadata()
	add := func(name, field string, spec object) { cases[name] = badCase{spec: spec, field: field} }
	addNew := func(name, field string, spec object) {
		cases[name] = badCase{spec: spec, field: field, newOnly: true}
	}
	cases["name as a label"] = badCase{metadata: object{"name": tooLongLabel}, field: "metadata.name", newOnly: true}
	addNew("unknown pool with Fail", "spec.templateName", object{"templateName": "nowhere", "onShortage": "Fail"})

	for name, value := range map[string]any{"0": 0, "-1": -1, "10^9": 1000000000, "10^10": 10000000000, "10001": 10001, "text": "3", "fraction": 1.5, "list": []any{1}} {
		add("replicas "+name, "spec.replicas", object{"replicas": value})
	}
	for _, field := range []string{"claimTimeout", "waitReadyTimeout"} {
		for _, value := range []any{"soon", "1", "", "-1s", "0s", "999ms", "1 m", "9999999999h", "24h1s", 5, true, object{}} {
			add(fmt.Sprintf("%s %v", field, value), "spec."+field, object{field: value})
		}
	}
	for _, value := range []any{"soon", "1", "", 5, []any{}} {
		add(fmt.Sprintf("ttlAfterCompleted %v", value), "spec.ttlAfterCompleted", object{"ttlAfterCompleted": value})
	}
	for _, value := range []any{"tomorrow", "2026-13-01T00:00:00Z", "2026-01-01", "", 1700000000, false} {
		add(fmt.Sprintf("shutdownTime %v", value), "spec.shutdownTime", object{"shutdownTime": value})
	}

	for _, key := range []string{
		v1alpha1.LabelClaimName, v1alpha1.LabelSandboxPool, v1alpha1.LabelSandboxTemplate, v1alpha1.LabelSandboxClaimed,
		v1alpha1.LabelTemplateHash, v1alpha1.LabelReservedFailedSandbox, v1alpha1.LabelSandboxID, v1alpha1.LabelOwner,
		v1alpha1.LabelSandboxName, v1alpha1.LabelCreatedBy, "sandlot.io/anything", "e2b.agents.kruise.io/anything",
	} {
		add("label "+key, "spec.labels["+key+"]", object{"labels": object{key: "x"}})
	}
	for _, key := range []string{
		v1alpha1.AnnotationLock, v1alpha1.AnnotationOwner, v1alpha1.AnnotationClaimTimestamp, v1alpha1.AnnotationRuntimeAccessToken,
		v1alpha1.AnnotationInitRuntimeRequest, v1alpha1.AnnotationUpdatedMetadataInClaim, v1alpha1.AnnotationSandboxPriority,
		v1alpha1.AnnotationE2BEnvdAccessToken, "sandlot.io/claimed-by",
	} {
		add("annotation "+key, "spec.annotations["+key+"]", object{"annotations": object{key: "x"}})
	}
	add("spec label key", "spec.labels", object{"labels": object{"a b": "x"}})
	add("spec label value", "spec.labels", object{"labels": object{"a": "x y"}})
	add("spec label too long", "spec.labels", object{"labels": object{"a": tooLongLabel}})
	add("spec label of a type", "spec.labels", object{"labels": object{"a": true}})
	add("spec labels of a type", "spec.labels", object{"labels": "a=b"})
	add("spec annotation key", "spec.annotations", object{"annotations": object{"a b": "x"}})
	add("spec annotations too long", "spec.annotations", object{"annotations": object{"a": strings.Repeat("x", 300<<10)}})

	add("no template", "spec.templateName", object{"templateName": nil})
	add("empty template", "spec.templateName", object{"templateName": ""})
	add("template of a type", "spec.templateName", object{"templateName": 7})
	for _, name := range []string{"Upper", "a/b", "../a", tooLongName} {
		add("template "+name, "spec.templateName", object{"templateName": name})
	}
	add("template very long", "spec.templateName", object{"templateName": strings.Repeat("x", 300<<10)})
	add("two templates", "spec.sandboxTemplateRef", object{"sandboxTemplateRef": object{"name": "pool"}})
	add("empty reference", "spec.sandboxTemplateRef", object{"templateName": nil, "sandboxTemplateRef": object{"name": ""}})
	add("pool of a type", "spec.warmPool", object{"warmPool": 7})
	add("pool No_Name", "spec.warmPool", object{"warmPool": "No_Name"})
	add("neither warm nor fresh", "spec.createOnNoStock", object{"warmPool": "none", "createOnNoStock": false})
	add("unknown strategy", "spec.annotations", object{"annotations": object{"e2b.agents.kruise.io/prewarm-strategy": "some"}})
	add("AllOrNothing of 128", "spec.replicas", object{"allocation": "AllOrNothing", "replicas": 128})

	for field, value := range map[string]any{"allocation": "Some", "onShortage": "fail", "reclaimPolicy": "Recycle"} {
		add("unknown "+field, "spec."+field, object{field: value})
		add(field+" of a type", "spec."+field, object{field: 1})
	}
	for _, field := range []string{"createOnNoStock", "skipInitRuntime", "reserveFailedSandbox"} {
		add(field, "spec."+field, object{field: "yes"})
	}
	add("variable of a runtime", "spec.envVars", object{"envVars": object{"A=B": "b"}})
	add("volume without a cluster", "spec.dynamicVolumesMount", object{"dynamicVolumesMount": []any{object{"pvName": "pv", "mountPath": "/data"}}})
	add("mount over the system", "spec.dynamicVolumesMount[0].mountPath", object{"dynamicVolumesMount": []any{object{"pvName": "pv", "mountPath": "/proc"}}})
	add("mounts without a runtime", "spec.skipInitRuntime", object{"skipInitRuntime": true, "dynamicVolumesMount": []any{object{"pvName": "pv", "mountPath": "/data"}}})
	addInjection(add)
	for _, key := range []string{"k8s.io/x", "app.kubernetes.io/name", "agents.x-k8s.io/claim-uid", "sidecar.istio.io/inject", v1alpha1.LabelOwner} {
		add("pod label "+key, "spec.additionalPodMetadata.labels["+key+"]", object{"additionalPodMetadata": object{"labels": object{key: "b"}}})
	}
	add("pod label and label", "spec.additionalPodMetadata.labels[a]", object{"labels": object{"a": "b"}, "additionalPodMetadata": object{"labels": object{"a": "c"}}})
	add("pod annotation of a type", "spec.additionalPodMetadata.annotations", object{"additionalPodMetadata": object{"annotations": object{"a": 1}}})
	add("lifecycle time", "spec.lifecycle.shutdownTime", object{"lifecycle": object{"shutdownTime": "x"}})
	for name, update := range map[string]object{
		"": {}, ".image": {"image": " busybox:2"}, ".resources.requests[cpu]": {"resources": object{"requests": object{"cpu": "0"}}},
		".resources.limits[cpu]": {"image": "busybox:2", "resources": object{"limits": object{"cpu": "-1"}}},
	} {
		add("in place"+name, "spec.inplaceUpdate"+name, object{"inplaceUpdate": update})
	}
	for _, value := range []any{-1, 2147483648, "5s", 1.5} {
		add(fmt.Sprintf("lifecycle TTL %v", value), "spec.lifecycle.ttlSecondsAfterFinished", object{"lifecycle": object{"ttlSecondsAfterFinished": value}})
	}
	for _, value := range []any{"delete", "Keep", 1} {
		add(fmt.Sprintf("lifecycle policy %v", value), "spec.lifecycle.shutdownPolicy", object{"lifecycle": object{"shutdownPolicy": value}})
	}
	add("quantity", "spec.inplaceUpdate.resources.limits", object{"inplaceUpdate": object{"resources": object{"limits": object{"cpu": "many"}}}})
	add("too many runtimes", "spec.runtimes", object{"runtimes": many(65, object{"name": "csi"})})
	add("runtime without name", "spec.runtimes[0].name", object{"runtimes": []any{object{}}})
	return cases
}

// addInjection is about what claims add to their sandboxes.
func addInjection(add func(name, field string, spec object)) {
	variable := object{"name": "A", "value": "b"}
	for name, bad := range map[string]struct {
		env   any
		field string
	}{
		"not allowed": {[]any{variable}, "spec.env"},
		"twice":       {[]any{variable, variable}, "spec.env[1].name"},
		"unnamed":     {[]any{object{"value": "b"}}, "spec.env[0].name"},
		"name":        {[]any{object{"name": "A=B", "value": "b"}}, "spec.env[0].name"},
		"of a type":   {[]any{object{"name": "A", "value": 1}}, "spec.env[0].value"},
		"container":   {[]any{object{"name": "A", "value": "b", "containerName": "A_B"}}, "spec.env[0].containerName"},
		"too many":    {many(257, variable), "spec.env"},
		"too large":   {[]any{object{"name": "A", "value": strings.Repeat("x", 33<<10)}}, "spec.env"},
		"not a list":  {object{"A": "b"}, "spec.env"},
	} {
		add("env "+name, bad.field, object{"env": bad.env})
	}
	add("env from a pool", "spec.warmPool", object{"env": []any{variable}, "warmPool": "default"})
	addVolumeClaims(add)
}

func many(n int, value any) []any {
	values := make([]any, n)
	for i := range values {
		values[i] = value
	}
	return values
}

func badSets() map[string]badCase {
	cases := badMetadata()
	add := func(name, field string, spec object) { cases[name] = badCase{spec: spec, field: field} }
	cases["name as a label"] = badCase{metadata: object{"name": tooLongLabel}, field: "metadata.name", newOnly: true}
	add("no replicas", "spec.replicas", object{"replicas": nil})
	for name, value := range map[string]any{"-1": -1, "10^9": 1000000000, "10^10": 10000000000, "text": "3", "fraction": 0.5} {
		add("replicas "+name, "spec.replicas", object{"replicas": value})
	}
	for _, strategy := range []string{"scaleStrategy", "updateStrategy"} {
		for _, value := range []any{"x", "-1", -1, "-5%", "%", "1.5%", 1.5, object{}} {
			add(fmt.Sprintf("%s %v", strategy, value), "spec."+strategy+".maxUnavailable", object{strategy: object{"maxUnavailable": value}})
		}
	}
	add("two templates", "spec.templateRef", object{"templateRef": object{"name": "template"}})
	addCopied(add)
	add("patch of its own template", "spec.patch", object{"patch": object{"spec": object{}}})
	for field, value := range map[string]any{"name": "A b", "kind": "Deployment", "apiVersion": "apps/v1"} {
		ref := object{"name": "template"}
		ref[field] = value
		add("reference with "+field, "spec.templateRef."+field, object{"template": nil, "templateRef": ref})
	}
	for name, patch := range map[string]any{"list": []any{}, "string": "x"} {
		add("patch that is a "+name, "spec.patch", object{"template": nil, "templateRef": object{"name": "template"}, "patch": patch})
	}
	addPauseStrategies(add)
	claim := object{"metadata": object{"name": "data"}, "spec": object{"resources": object{"requests": object{"storage": "1Gi"}}}}
	add("volume that no container mounts", "spec.volumeClaimTemplates[0].metadata.name", object{"volumeClaimTemplates": []any{claim}})
	addVolumeClaims(add)
	return cases
}

// addCopied is about what sets hand on to sandboxes.
func addCopied(add func(name, field string, spec object)) {
	for name, bad := range map[string]struct {
		values []any
		field  string
	}{
		"unknown": {[]any{"ip", "disk"}, "spec.persistentContents[1]"},
		"twice":   {[]any{"ip", "ip"}, "spec.persistentContents[1]"},
		"of type": {[]any{1}, "spec.persistentContents"},
	} {
		add("persistentContents "+name, bad.field, object{"persistentContents": bad.values})
	}
	csi := object{"name": "csi"}
	for name, bad := range map[string]struct {
		values []any
		field  string
	}{
		"twice":   {[]any{csi, csi}, "spec.runtimes[1].name"},
		"unnamed": {[]any{object{}}, "spec.runtimes[0].name"},
		"a path":  {[]any{object{"name": "a/b"}}, "spec.runtimes[0].name"},
	} {
		add("runtimes "+name, bad.field, object{"runtimes": bad.values})
	}
}

func addPauseStrategies(add func(name, field string, spec object)) {
	for name, strategy := range map[string]object{"hibernate": {"type": "Hibernate"}, "unknown": {"type": "Sleep"}, "of a type": {"type": 1}} {
		add("pauseStrategy "+name, "spec.pauseStrategy.type", object{"pauseStrategy": strategy})
	}
}

func addVolumeClaims(add func(name, field string, spec object)) {
	const at = "spec.volumeClaimTemplates[0]"
	for name, bad := range map[string]struct {
		claim object
		field string
	}{
		"without name":    {object{"spec": object{}}, at + ".metadata.name"},
		"without storage": {object{"metadata": object{"name": "data"}, "spec": object{}}, at + ".spec.resources.requests[storage]"},
		"of a type":       {object{"metadata": object{"name": 5}}, at + ".metadata.name"},
	} {
		add("volume claim "+name, bad.field, object{"volumeClaimTemplates": []any{bad.claim}})
	}
}

func badSandboxes() map[string]badCase {
	cases := badMetadata()
	add := func(name, field string, spec object) { cases[name] = badCase{spec: spec, field: field} }
	for _, field := range []string{"shutdownTime", "pauseTime"} {
		for _, value := range []any{"tomorrow", "2026-02-30T00:00:00Z", "", 5} {
			add(fmt.Sprintf("%s %v", field, value), "spec."+field, object{field: value})
		}
	}
	for field, value := range map[string]any{
		"upgradePolicy": object{"type": "Recreate"},
		"lifecycle":     object{"preUpgrade": object{"exec": object{"command": []any{"true"}}}},
	} {
		add("not served: "+field, "spec."+field, object{field: value})
	}
	add("service", "spec.service", object{"service": "yes"})
	addCopied(add)
	addPauseStrategies(add)
	addVolumeClaims(add)
	return cases
}

// badTemplates are mistakes in a pod template, which three kinds have.
func badTemplates() map[string]badCase {
	container := func(fields object) object {
		return object{"spec": object{"containers": []any{fields}}}
	}
	cases := map[string]badCase{}
	add := func(name, field string, template any) {
		cases["template: "+name] = badCase{spec: object{"template": template}, field: field}
	}
	add("missing", "spec.template", nil)
	add("a string", "spec.template", "x")
	add("a list", "spec.template", []any{})
	cases["template: no containers"] = badCase{
		spec: object{"template": object{"spec": object{"containers": nil}}}, field: "spec.template.spec.containers", leavesGood: true,
	}
	add("container without image", "spec.template.spec.containers[0].image", container(object{"name": "a", "image": nil}))
	add("container without name", "spec.template.spec.containers[0].name", container(object{"name": nil, "image": "a"}))
	add("container of a bad name", "spec.template.spec.containers[0].name", container(object{"name": "A b", "image": "a"}))
	add("two of a name", "spec.template.spec.containers[1].name", object{"spec": object{"containers": many(2, object{"name": "a", "image": "a"})}})
	add("wrong type", "spec.template", object{"spec": object{"containers": "x"}})
	add("quantity", "spec.template", container(object{"name": "a", "image": "a", "resources": object{"limits": object{"cpu": "many"}}}))
	add("label", "spec.template.metadata.labels", object{"metadata": object{"labels": object{"a": "x y"}}, "spec": goodTemplate()["spec"]})
	add("reserved key", "spec.template.metadata.annotations", object{
		"metadata": object{"annotations": object{"e2b.agents.kruise.io/x": "y"}}, "spec": goodTemplate()["spec"],
	})
	add("too long", "spec.template", container(object{"name": "a", "image": "a", "args": []any{strings.Repeat("x", 300<<10)}}))
	return cases
}

// testSizes sends what is too large, as a whole or to be stored.
func testSizes(t *testing.T, b *badInput) {
	filler := strings.Repeat("x", 2<<20)
	large := encode(t, b.object("fresh", badCase{spec: object{"annotations": object{"a": filler}}}))
	for name, send := range map[string]struct{ method, path, mediaType, body string }{
		"create":           {http.MethodPost, "", asJSON, large},
		"create from YAML": {http.MethodPost, "", asYAML, large},
		"apply":            {http.MethodPatch, "/fresh?fieldManager=x", asApply, large},
		"apply a change":   {http.MethodPatch, "/good?fieldManager=x&force=true", asApply, strings.Replace(large, "fresh", "good", 1)},
		"replace":          {http.MethodPut, "/good", asJSON, strings.Replace(large, "fresh", "good", 1)},
		"merge patch":      {http.MethodPatch, "/good", asMergePatch, `{"spec":{"annotations":{"a":"` + filler + `"}}}`},
		"JSON patch":       {http.MethodPatch, "/good", asJSONPatch, `[{"op":"add","path":"/spec/annotations","value":{"a":"` + filler + `"}}]`},
		"delete":           {http.MethodDelete, "/good", asJSON, `{"propagationPolicy":"` + filler + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := b.request(t, send.method, b.path+send.path, send.mediaType, send.body)
			a.refused(t, "limit")
			if a.code != http.StatusRequestEntityTooLarge {
				t.Errorf("refused with %d, want 413", a.code)
			}
			b.nothingHappened(t)
		})
	}
	// Small enough to be sent, but not to be stored: the managed fields name every
	// key once more.
	labels := object{}
	for i := range 9000 {
		labels[fmt.Sprintf("%063d/%s", i, strings.Repeat("k", 30))] = ""
	}
	crowded := b.object("fresh", badCase{metadata: object{"labels": labels}})
	for name, send := range map[string]struct{ method, path, mediaType string }{
		"create crowded": {http.MethodPost, "", asJSON},
		"apply crowded":  {http.MethodPatch, "/fresh?fieldManager=x", asApply},
	} {
		t.Run(name, func(t *testing.T) {
			b.request(t, send.method, b.path+send.path, send.mediaType, encode(t, crowded)).refused(t, "")
			b.nothingHappened(t)
		})
	}
}

func testBadSubresources(t *testing.T, b *badInput) {
	set := namespacePath + b.namespace + "/sandboxsets/pool"
	sandboxes := namespacePath + b.namespace + "/sandboxes/"
	for name := range b.sandboxes(t, b.namespace) {
		sandboxes += name
		break
	}
	for name, tc := range map[string]struct{ path, patch, field string }{
		"claim: replicas changed":  {b.path + "/good", `{"spec":{"replicas":2}}`, "spec.replicas"},
		"claim: phase":             {b.path + "/good/status", `{"status":{"phase":"Frob"}}`, "status.phase"},
		"claim: negative":          {b.path + "/good/status", `{"status":{"claimedReplicas":-1}}`, "status.claimedReplicas"},
		"claim: type":              {b.path + "/good/status", `{"status":{"claimedReplicas":"x"}}`, "status.claimedReplicas"},
		"claim: time":              {b.path + "/good/status", `{"status":{"completionTime":"x"}}`, "status.completionTime"},
		"claim: condition":         {b.path + "/good/status", `{"status":{"conditions":[{"type":"a b","status":"Perhaps"}]}}`, "status.conditions[0].status"},
		"claim: sandbox twice":     {b.path + "/good/status", `{"status":{"sandboxes":[{"name":"a"},{"name":"a"}]}}`, "status.sandboxes[1]"},
		"claim: sandbox name":      {b.path + "/good/status", `{"status":{"sandboxes":[{"name":"A B"}]}}`, "status.sandboxes[0].name"},
		"set: negative":            {set + "/status", `{"status":{"availableReplicas":-1}}`, "status.availableReplicas"},
		"set: scaled below 0":      {set + "/scale", `{"spec":{"replicas":-1}}`, "spec.replicas"},
		"set: scaled too far":      {set + "/scale", `{"spec":{"replicas":1000000000}}`, "spec.replicas"},
		"set: scaled beyond int32": {set + "/scale", `{"spec":{"replicas":10000000000}}`, "spec.replicas"},
		"set: scaled by text":      {set + "/scale", `{"spec":{"replicas":"3"}}`, "spec.replicas"},
		"sandbox: phase":           {sandboxes + "/status", `{"status":{"phase":"Frob"}}`, "status.phase"},
		"sandbox: type":            {sandboxes + "/status", `{"status":{"podInfo":{"podIP":1}}}`, "status.podInfo.podIP"},
	} {
		t.Run(name, func(t *testing.T) {
			b.request(t, http.MethodPatch, tc.path, asMergePatch, tc.patch).refused(t, tc.field)
			b.nothingHappened(t)
		})
	}
}
