// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sandlot-io/sandlot/pkg/gateway/mapping"
)

// splitHost returns what a host named <port>-<id>.<domain> consists of. ok is false if the
// host is no sandbox's: one that is not below one of our domains, or, where any will do, one
// that does not look like that.
func (p *Proxy) splitHost(host string) (port, id string, ok bool) {
	label, domain, found := strings.Cut(canonical(host), ".")
	if !found || domain == "" {
		return "", "", false
	}
	port, id, found = strings.Cut(label, "-")
	if !found || port == "" || strings.Trim(port, "0123456789") != "" {
		return "", "", false
	}
	if len(p.options.Domains) > 0 {
		return port, id, slices.Contains(p.options.Domains, domain)
	}
	_, _, ok = mapping.ParseSandboxID(id)
	return port, id, ok
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
