// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import "net/netip"

// Source returns the network that a client counts for: the IPv4 address of a peer, or the
// /64 network of its IPv6 address. peer is an address with a port. Peers without one, such as
// those of Unix sockets, count for the same source.
func Source(peer string) string {
	parsed, err := netip.ParseAddrPort(peer)
	if err != nil {
		return ""
	}
	address, bits := parsed.Addr().Unmap().WithZone(""), 64
	if address.Is4() {
		bits = 32
	}
	return netip.PrefixFrom(address, bits).Masked().String()
}

// siteBits is the size of the networks that providers give to a customer at least: each
// has 256 of /64.
const siteBits = 56

// Site returns what sources that one customer of a provider may have count for together: the
// /56 network of a source of IPv6. Any other source counts for itself.
func Site(source string) string {
	network, err := netip.ParsePrefix(source)
	if err != nil || network.Addr().Is4() {
		return source
	}
	return netip.PrefixFrom(network.Addr(), siteBits).Masked().String()
}
