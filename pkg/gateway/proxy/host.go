// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// splitHost returns the parts of a host <port>-<id>.<domain>. ok is false for other hosts: those that are
// not below one of the domains or, if any domain is accepted, those whose id is not valid.
func (p *Proxy) splitHost(host string) (id, port string, ok bool) {
	label, domain, found := strings.Cut(canonical(host), ".")
	if !found || domain == "" {
		return "", "", false
	}
	port, id, found = strings.Cut(label, "-")
	if !found || port == "" || strings.Trim(port, "0123456789") != "" {
		return "", "", false
	}
	if len(p.options.Domains) > 0 {
		return id, port, slices.Contains(p.options.Domains, domain)
	}
	_, _, ok = mapping.ParseSandboxID(id)
	return id, port, ok
}

// canonical is a host in lower case, without a port and without the dot that ends a complete
// name. It is empty if that is no name of a host.
func canonical(host string) string {
	if name, port, found := strings.Cut(host, ":"); found {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return ""
		}
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, c := range []byte(host) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return ""
		}
	}
	return host
}
