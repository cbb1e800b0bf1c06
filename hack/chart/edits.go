// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// programs are what runs, by the name of its workload: the values that are for it.
var programs = map[string]string{
	"sandlot-apiserver":          ".Values.apiServer",
	"sandlot-controller-manager": ".Values.controllerManager",
	"sandlot-gateway":            ".Values.gateway",
	"sandlot-etcd":               ".Values.etcd",
}

// images are the values of an image, by its name in the install.
var images = map[string]string{
	"sandlot-apiserver":          ".Values.apiServer.image",
	"sandlot-controller-manager": ".Values.controllerManager.image",
	"sandlot-gateway":            ".Values.gateway.image",
	"sandlot-etcd":               ".Values.etcd.image",
	"sandlot":                    ".Values.backup.image",
}

// registry begins the names of our own images.
const registry = "ghcr.io/sandlot-io/"

// fixedUser are fields that a cluster may want to choose itself, as OpenShift does.
var fixedUser = []string{"runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy"}

// pullSecrets are of pods and of service accounts.
const pullSecrets lines = "{{- with .Values.image.pullSecrets }}\nimagePullSecrets:\n{{- toYaml . | nindent INDENT }}\n{{- end }}"

// userSecrets are Secrets whose name is the user's to say.
var userSecrets = map[string]expression{
	"sandlot-gateway-tls": ".Values.gateway.tlsSecretName",
	"sandlot-backup-s3":   ".Values.backup.s3.secretName",
}

// editObject puts values of the chart into an object.
func editObject(o *mapping) error {
	metadata := o.at("metadata")
	if metadata.get("labels") == nil {
		metadata.set("labels", newMapping())
	}
	first(metadata.at("labels"), "sandlot.labels", lines(`{{- include "sandlot.labels" . | nindent INDENT }}`))
	editAnnotations(o.text("kind"), metadata)
	switch o.text("kind") {
	case "Deployment", "StatefulSet":
		return editWorkload(o)
	case "CronJob":
		return editJob(o)
	case "PersistentVolumeClaim":
		editVolume(o, ".Values.backup")
	case "ServiceAccount":
		o.set("imagePullSecrets", pullSecrets)
	case "NetworkPolicy":
		editNetworkPolicy(o)
	case "Service":
		if o.text("metadata", "name") == "sandlot-gateway" {
			overriddenScalar(o.at("spec"), "type", ".Values.gateway.service.type")
		}
	}
	return nil
}

// first adds an entry before all others.
func first(m *mapping, key string, value any) {
	m.set(key, value)
	m.keys = append([]string{key}, slices.DeleteFunc(m.keys, func(k string) bool { return k == key })...)
}

// kept are kinds of objects that outlive the release, and values without them: what is in
// them would be gone for good, API keys and backups.
var kept = []string{"Namespace", "PersistentVolumeClaim"}

// accounts are ServiceAccounts that a cloud may give credentials to, and the values that name
// these.
var accounts = map[string]string{
	"sandlot-backup":  ".Values.backup.serviceAccountAnnotations.backup",
	"sandlot-restore": ".Values.backup.serviceAccountAnnotations.restore",
}

// editAnnotations adds those that are the user's.
func editAnnotations(kind string, metadata *mapping) {
	value := ".Values.commonAnnotations"
	if kind == "Service" && metadata.text("name") == "sandlot-gateway" {
		value = "(merge (dict) .Values.gateway.service.annotations .Values.commonAnnotations)"
	}
	if slices.Contains(kept, kind) {
		metadata.set("annotations", newMapping())
		metadata.at("annotations").set("helm.sh/resource-policy", "keep")
	}
	if account, ok := accounts[metadata.text("name")]; ok && kind == "ServiceAccount" {
		value = "(merge (dict) " + account + " .Values.commonAnnotations)"
	}
	if own := metadata.at("annotations"); own != nil {
		own.set("common", appended(value))
		return
	}
	metadata.set("annotations", below("annotations", value))
}

// below is an entry that a value of the chart is all of, where it is not empty.
func below(key, value string) lines {
	return lines("{{- with " + value + " }}\n" + key + ":\n  {{- toYaml . | nindent INDENT2 }}\n{{- end }}")
}

// appended are entries or items that a value of the chart adds.
func appended(value string) lines {
	return lines("{{- with " + value + " }}\n{{- toYaml . | nindent INDENT }}\n{{- end }}")
}

// overridden lets a value of the chart take the place of an entry, whether that is there or
// not.
func overridden(m *mapping, key, value string) {
	own := newMapping()
	if was, ok := m.values[key]; ok {
		own.set(key, was)
	}
	m.set(key, overridable{value: value, own: own})
}

// overriddenScalar is overridden for a value on one line.
func overriddenScalar(m *mapping, key, value string) {
	overridden(m, key, value)
	o := m.get(key).(overridable)
	o.scalar = true
	m.set(key, o)
}

func editWorkload(o *mapping) error {
	name := o.text("metadata", "name")
	values, ok := programs[name]
	if !ok {
		return fmt.Errorf("%s %s has no values: give it some in programs of hack/chart", o.text("kind"), name)
	}
	spec := o.at("spec")
	if name != "sandlot-etcd" { // whose members are named in flags
		replicas := values + ".replicas"
		if name == "sandlot-apiserver" {
			replicas = "(and (not .Values.stopped) " + replicas + ")"
		}
		overriddenScalar(spec, "replicas", replicas)
	}
	claims, _ := spec.get("volumeClaimTemplates").([]any)
	for _, claim := range claims {
		editVolume(claim.(*mapping), ".Values.etcd")
	}
	return editPod(spec.at("template"), values)
}

// editJob puts the values of backups into what takes them, or restores one. Not all flags are
// of both.
func editJob(o *mapping) error {
	template := o.at("spec", "jobTemplate", "spec", "template")
	program := template.at("spec").get("containers").([]any)[0].(*mapping)
	program.add("args", appended(".Values.backup.commonArgs"))
	if o.text("metadata", "name") == "sandlot-backup" {
		overriddenScalar(o.at("spec"), "schedule", ".Values.backup.schedule")
		program.add("args", appended(".Values.backup.extraArgs"))
	}
	return editPod(template, ".Values.backup")
}

// editVolume puts the values of a program into a PersistentVolumeClaim.
func editVolume(claim *mapping, values string) {
	spec := claim.at("spec")
	overriddenScalar(spec, "storageClassName", values+".storage.className")
	overriddenScalar(spec.at("resources", "requests"), "storage", values+".storage.size")
}

// editPod puts the values of a program into what its pods are made of.
func editPod(template *mapping, values string) error {
	metadata := template.at("metadata")
	metadata.at("labels").set("podLabels", appended(values+".podLabels"))
	if own := metadata.at("annotations"); own != nil {
		own.set("podAnnotations", appended(values+".podAnnotations"))
	} else {
		metadata.set("annotations", below("annotations", values+".podAnnotations"))
	}
	pod := template.at("spec")
	pod.set("imagePullSecrets", pullSecrets)
	overridden(pod, "nodeSelector", "("+values+".nodeSelector | default .Values.nodeSelector)")
	overridden(pod, "tolerations", "("+values+".tolerations | default .Values.tolerations)")
	overridden(pod, "affinity", values+".affinity")
	overridden(pod, "topologySpreadConstraints", values+".topologySpreadConstraints")
	if class, ok := pod.values["priorityClassName"]; ok {
		pod.set("priorityClassName", conditional{priorityClass, class})
	}
	editSecurity(pod)
	volumes, _ := pod.get("volumes").([]any)
	for _, volume := range volumes {
		secret := volume.(*mapping).at("secret")
		if user, ok := userSecrets[secret.text("secretName")]; ok {
			secret.set("secretName", user)
		}
	}
	before, _ := pod.get("initContainers").([]any)
	containers := pod.get("containers").([]any)
	for _, container := range append(slices.Clone(before), containers...) {
		if err := editImage(container.(*mapping)); err != nil {
			return err
		}
		editSecurity(container.(*mapping))
	}
	program := containers[0].(*mapping)
	sources, _ := program.get("envFrom").([]any)
	for _, source := range sources {
		secret := source.(*mapping).at("secretRef")
		if user, ok := userSecrets[secret.text("name")]; ok {
			secret.set("name", user)
		}
	}
	overridden(program, "resources", values+".resources")
	if values == ".Values.gateway" {
		program.add("args", lines("{{- with .Values.gateway.domain }}\n- --domain={{ . }}\n{{- end }}"))
	}
	if values != ".Values.backup" { // editJob
		program.add("args", appended(values+".extraArgs"))
	}
	if values == ".Values.apiServer" || values == ".Values.backup" {
		pod.add("volumes", appended(values+".extraVolumes"))
		program.add("volumeMounts", appended(values+".extraVolumeMounts"))
	}
	return nil
}

func editSecurity(of *mapping) {
	security := of.at("securityContext")
	for _, field := range fixedUser {
		if value := security.get(field); value != nil {
			security.set(field, conditional{".Values.podSecurityContext.fixedUser", value})
		}
	}
}

// editImage lets the chart name an image. Ours have the version of the chart, others the one
// that the install says.
func editImage(container *mapping) error {
	image, tag, _ := strings.Cut(container.text("image"), ":")
	values, ok := images[path.Base(image)]
	if !ok {
		return fmt.Errorf("image %q has no values: give it some in images of hack/chart", container.text("image"))
	}
	if strings.HasPrefix(image, registry) {
		image, tag = path.Base(image), ""
	}
	container.set("image", expression(fmt.Sprintf(`include "sandlot.image" (list . %s %q %q)`, values, image, tag)))
	overriddenScalar(container, "imagePullPolicy", ".Values.image.pullPolicy")
	return nil
}

// editNetworkPolicy lets the networks be named that a policy of ours cannot know: an empty
// rule of egress is for kube-apiserver and webhooks, a rule of ingress for all is for
// kube-apiserver and who else asks the API server, and that of the gateway for its users.
func editNetworkPolicy(o *mapping) {
	spec := o.at("spec")
	from, peers := ".Values.networkPolicy.ingressCIDRs", blocks+"\n"+askers
	if o.text("metadata", "name") == "sandlot-gateway" {
		from, peers = ".Values.networkPolicy.gatewayCIDRs", blocks
	}
	rules, _ := spec.get("ingress").([]any)
	for _, rule := range rules {
		if rule := rule.(*mapping); rule.get("from") == nil {
			rule.set("from", lines("{{- with "+from+" }}\nfrom:\n"+peers+"\n{{- end }}"))
		}
	}
	rules, _ = spec.get("egress").([]any)
	for i, rule := range rules {
		rule := rule.(*mapping)
		switch {
		case len(rule.keys) == 0:
			rules[i] = lines("{{- with .Values.networkPolicy.egressCIDRs }}\n- to:\n  " +
				strings.ReplaceAll(networks, "\n", "\n  ") + "\n{{- else }}\n- {}\n{{- end }}")
		case rule.get("to") == nil && !hasPort(rule, 53):
			if hasPort(rule, 443) { // kube-apiserver
				rule.add("ports", lines("{{- range .Values.networkPolicy.extraEgressPorts }}\n- protocol: TCP\n  port: {{ . }}\n{{- end }}"))
			}
			rule.set("to", lines("{{- with .Values.networkPolicy.egressCIDRs }}\nto:\n"+networks+"\n{{- end }}"))
		}
	}
}

// hasPort reports whether a rule names a port: that of DNS, wherever it is, or of what else
// may be anywhere.
func hasPort(rule *mapping, number int) bool {
	ports, _ := rule.get("ports").([]any)
	return slices.ContainsFunc(ports, func(port any) bool {
		of, _ := port.(*mapping)
		return of.get("port") == number
	})
}

// networks are those that a value of the chart names, and all pods of the cluster, where
// webhooks and sandboxes may be.
const networks = "- namespaceSelector: {}\n" + blocks

// blocks are networks that a value of the chart names.
const blocks = "{{- range . }}\n- ipBlock:\n    cidr: {{ . | quote }}\n{{- end }}"

// askers are the pods that ask the API server itself: Prometheus, and what takes backups.
const askers = "- namespaceSelector:\n    matchLabels:\n      metrics: enabled\n- podSelector:\n    matchLabels:\n      app.kubernetes.io/name: sandlot-backup"

// externalEtcd names what is the user's where etcd is.
func externalEtcd(o *mapping) {
	rules, _ := o.at("spec").get("egress").([]any)
	for _, rule := range rules {
		if rule, ok := rule.(*mapping); ok && hasPort(rule, 2379) {
			rule.set("ports", []any{lines("{{- range include \"sandlot.etcdPorts\" . | splitList \" \" }}\n- protocol: TCP\n  port: {{ . }}\n{{- end }}")})
		}
	}
	pod := o.at("spec", "template", "spec")
	volumes, _ := pod.get("volumes").([]any)
	for _, volume := range volumes {
		if volume, ok := volume.(*mapping); ok && volume.text("secret", "secretName") == "sandlot-etcd-client" {
			volume.at("secret").set("secretName", expression(".Values.etcd.external.secretName"))
		}
	}
	containers, _ := pod.get("containers").([]any)
	for _, container := range containers {
		env, _ := container.(*mapping).get("env").([]any)
		for _, variable := range env {
			if ref := variable.(*mapping).at("valueFrom", "configMapKeyRef"); ref.text("name") == "sandlot-etcd" {
				ref.set("name", expression(`include "sandlot.etcdConfigMap" .`))
			}
		}
	}
}
