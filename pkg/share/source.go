// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package share

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
