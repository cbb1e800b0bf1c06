// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

// DefaultPort is where a runtime listens if nothing else is said.
const DefaultPort = 49983

// ServerName is the name in the certificate of a runtime that speaks TLS.
const ServerName = "agentruntime.sandbox.agents.kruise.io"

// Target is a runtime to call.
type Target struct {
	// Namespace is that of the sandbox. Calls of a namespace share what there is room for.
	Namespace string
	// PodIP is the address of the sandbox's pod.
	PodIP string
	// URL is the base URL of the runtime, if it is not http://<PodIP>:49983. Its scheme
	// must be http and its host PodIP.
	URL string
	// TLSPort is the port of a runtime that speaks TLS. It is called at PodIP, whatever
	// URL says. Empty is a runtime that does not.
	TLSPort string
}

// Address is where the runtime is called, host and port.
func (t Target) Address() (string, error) {
	base, err := t.base()
	if err != nil {
		return "", err
	}
	return base.Host, nil
}

// BaseURL is what paths of the runtime's API are joined to.
func (t Target) BaseURL() (string, error) {
	base, err := t.base()
	if err != nil {
		return "", err
	}
	return base.String(), nil
}

// base is the URL that paths are joined to. Its host is an address with a port.
func (t Target) base() (*url.URL, error) {
	ip, err := t.address()
	if err != nil {
		return nil, err
	}
	switch {
	case t.TLSPort != "":
		port, err := strconv.ParseUint(t.TLSPort, 10, 16)
		if err != nil || port == 0 {
			return nil, refused("the TLS port of the agent-runtime is not a port, from 1 to 65535")
		}
		return &url.URL{Scheme: "https", Host: join(ip, strconv.FormatUint(port, 10))}, nil
	case t.URL != "":
		return parse(t.URL, ip)
	}
	return &url.URL{Scheme: "http", Host: join(ip, strconv.Itoa(DefaultPort))}, nil
}

// address is the pod's. Those that no pod can have are where machines keep what is none
// of a sandbox's business, the metadata of a cloud for one.
func (t Target) address() (netip.Addr, error) {
	if t.PodIP == "" {
		return netip.Addr{}, &Error{kind: unreachable, message: "the sandbox has no pod address yet"}
	}
	ip, err := netip.ParseAddr(t.PodIP)
	if err != nil || ip.Zone() != "" {
		return netip.Addr{}, refused("the pod address of the sandbox is not an IP address")
	}
	if ip = ip.Unmap(); ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip == broadcast {
		return netip.Addr{}, refused(fmt.Sprintf("%s is not the address of a pod", ip))
	}
	return ip, nil
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// parse reads the base URL of the runtime in the pod that has an address. No error has
// the URL, which readers of the error may not know.
func parse(raw string, pod netip.Addr) (*url.URL, error) {
	base, err := url.Parse(raw)
	if err != nil || base.Opaque != "" {
		return nil, refused("the URL of the agent-runtime is not a URL")
	}
	if base.Scheme != "http" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, refused("the URL of the agent-runtime must be http://<pod IP>:<port>/<path>, without user, query and fragment; a runtime that speaks TLS has a TLS port instead")
	}
	if host, err := netip.ParseAddr(base.Hostname()); err != nil || host.Unmap() != pod {
		return nil, refused(fmt.Sprintf("the host of the agent-runtime's URL must be the sandbox's own pod IP, %s", pod))
	}
	port := base.Port()
	if port == "" {
		port = "80"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, refused("the port in the URL of the agent-runtime must be from 1 to 65535")
	}
	base.Host = join(pod, port)
	return base, nil
}

func join(ip netip.Addr, port string) string { return net.JoinHostPort(ip.String(), port) }
