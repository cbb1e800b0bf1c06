// Looks for known vulnerabilities in what is shipped. A module of its own, for it pins the
// tool.
module github.com/sandlot-io/sandlot/hack/vulncheck

go 1.26.0

replace github.com/sandlot-io/sandlot/hack/image => ../image

require (
	github.com/sandlot-io/sandlot/hack/image v0.0.0
	golang.org/x/vuln v1.9.0
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	go.yaml.in/yaml/v3 v3.0.4 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/telemetry v0.0.0-20261010193011-f71dc92da45e // indirect
	golang.org/x/tools v0.52.0 // indirect
)
