// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// choice is something that the chart has where a condition holds, and that an install by
// kustomize has by its components.
type choice struct {
	// condition is an expression of templates, of a choice that is free of all others.
	condition string
	// facts are true of a choice of the store, of which an install has exactly one. Each is
	// a key of storeFacts.
	facts []string
	// overlay is what the install begins with, in the place of bases and components.
	overlay string
	// components are added to the install, and over to what is rendered of that: they have
	// a namespace of their own.
	components, over []string
	// edit puts values of the chart into what differs for this choice.
	edit func(*mapping)
}

// stopped comes before all other choices: where several change a value, the first one has its
// way, as a component has that is added last.
var stopped = &choice{condition: ".Values.stopped", components: []string{"stopped"}}

// stores are the choices of the store.
var stores = []*choice{
	{facts: []string{"cluster"}, components: []string{"etcd"}},
	{facts: []string{"cluster", "backup"}, components: []string{"etcd", "backup-etcd"}},
	{facts: []string{"cluster", "backup", "s3"}, components: []string{"etcd", "backup-etcd", "backup-s3"}},
	{facts: []string{"embedded"}, components: []string{"embedded-etcd"}},
	{facts: []string{"embedded", "backup"}, components: []string{"embedded-etcd", "backup-embedded-etcd"}},
	{facts: []string{"embedded", "backup", "s3"}, components: []string{"embedded-etcd", "backup-embedded-etcd", "backup-s3"}},
	{facts: []string{"embedded", "small"}, overlay: "small"},
	{facts: []string{"external"}, components: []string{"external-etcd"}, edit: externalEtcd},
}

// storeFacts are the expressions for what is true of a store.
var storeFacts = map[string]string{
	"cluster":  `eq .Values.etcd.mode "cluster"`,
	"embedded": `eq .Values.etcd.mode "embedded"`,
	"external": `eq .Values.etcd.mode "external"`,
	"small":    `eq .Values.profile "small"`,
	"backup":   `include "sandlot.backup" .`,
	"s3":       `eq (include "sandlot.backup" .) "s3"`,
}

// others are the choices that are free, in the order in which users add the components.
var others = []*choice{
	{condition: ".Values.gateway.enabled", components: []string{"e2b-gateway"}, over: []string{"e2b-keys"}},
	{condition: ".Values.agentSandbox.enabled", components: []string{"agent-sandbox"}},
	{condition: ".Values.dryRuns.enabled", components: []string{"dry-runs"}},
	{condition: ".Values.restricted.enabled", components: []string{"restricted"}},
}

// bases are what every install has.
var bases = []string{"access", "api", "apiserver", "controller-manager", "namespace"}

// always are components of every install.
var always = []string{"images"}

// kinds are conditions for all objects of a kind.
var kinds = map[string]string{
	"NetworkPolicy": ".Values.networkPolicy.enabled",
	"PriorityClass": priorityClass,
}

const priorityClass = ".Values.priorityClass.enabled"
