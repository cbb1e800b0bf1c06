// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// numbers is how many nodes a machine can have.
const numbers = 60

// networks are where pods and nodes get their addresses from. The first one that is free on
// this machine is taken.
var networks = []netip.Prefix{
	netip.MustParsePrefix("10.232.0.0/16"),
	netip.MustParsePrefix("172.29.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/16"),
}

// routeMetric marks our routes that lead nowhere. Those of a node that is there come first.
const routeMetric = "4096"

// number is what a node has for itself on this machine: names and addresses follow from it.
type number struct {
	n       int
	network netip.Prefix
	// held is a socket without a file, whose name only one process has at a time. It ends with
	// the process.
	held net.Listener
}

// takeNumber returns a number that no other node has, and that of the last time if it can. What
// a node that had it before has left is gone.
func takeNumber(file string) (*number, error) {
	candidates := make([]int, 0, numbers+1)
	if kept, err := os.ReadFile(file); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(kept))); err == nil && n >= 1 && n <= numbers {
			candidates = append(candidates, n)
		}
	}
	for n := range numbers {
		candidates = append(candidates, n+1)
	}
	for _, n := range candidates {
		taken, err := hold(n)
		if err != nil {
			continue // another one has it
		}
		err = errors.Join(taken.clean(), taken.chooseNetwork(), os.WriteFile(file, []byte(strconv.Itoa(n)), 0o600))
		if err != nil {
			return nil, errors.Join(err, taken.release())
		}
		return taken, nil
	}
	return nil, fmt.Errorf("this machine has %d real nodes, which is all it can have", numbers)
}

// hold makes a number ours as long as this process lives, or returns an error if it is not free.
func hold(n int) (*number, error) {
	held, err := new(net.ListenConfig).Listen(context.Background(), "unix", fmt.Sprintf("@sandlot-real-node-%d", n))
	if err != nil {
		return nil, err
	}
	return &number{n: n, held: held}, nil
}

// RemoveLeftovers removes the links, routes and cgroups of nodes whose process was killed. It does nothing if
// the caller is not root.
func RemoveLeftovers() error {
	if os.Geteuid() != 0 {
		return nil
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil //nolint:nilerr // there was no node
	}
	routes, err := blackholes()
	if err != nil {
		return err
	}
	var errs []error
	for n := range numbers {
		free, err := hold(n + 1)
		if err != nil {
			continue // it is in use
		}
		errs = append(errs, free.cleanWith(routes), free.release())
	}
	return errors.Join(errs...)
}

func (n *number) release() error { return n.held.Close() }

// link and cgroup are names on this machine.
func (n *number) link() string   { return fmt.Sprintf("sandlot%d", n.n) }
func (n *number) cgroup() string { return fmt.Sprintf("sandlot-node-%d", n.n) }

// hostAddress and nodeAddress are the ends of the link, and pods the addresses of pods.
func (n *number) hostAddress() string { return n.address(254, 4*n.n-3).String() }
func (n *number) nodeAddress() string { return n.address(254, 4*n.n-2).String() }
func (n *number) pods() netip.Prefix  { return netip.PrefixFrom(n.address(n.n, 0), 24) }
func (n *number) ends() netip.Prefix  { return netip.PrefixFrom(n.address(254, 4*n.n-4), 30) }

func (n *number) address(third, fourth int) netip.Addr {
	bytes := n.network.Addr().As4()
	bytes[2], bytes[3] = byte(third), byte(fourth)
	return netip.AddrFrom4(bytes)
}

// chooseNetwork finds a network in which this machine knows no addresses but those of nodes.
func (n *number) chooseNetwork() error {
	out, err := exec.Command("ip", "-4", "-oneline", "route", "show", "table", "all").Output()
	if err != nil {
		return fmt.Errorf("asking for routes: %w", err)
	}
	for _, n.network = range networks {
		if isFree(n.network, string(out)) {
			return nil
		}
	}
	return fmt.Errorf("this machine has routes into all of %v", networks)
}

// isFree reports whether the routes of a machine leave a network free. Routes of real nodes and the default
// route do not count.
func isFree(network netip.Prefix, routes string) bool {
	for line := range strings.Lines(routes) {
		if strings.Contains(line, " dev sandlot") || strings.Contains(line, " metric "+routeMetric) {
			continue
		}
		for _, field := range strings.Fields(line)[:min(2, len(strings.Fields(line)))] {
			to, err := netip.ParsePrefix(field)
			if address, addressErr := netip.ParseAddr(field); err != nil && addressErr == nil {
				to, err = netip.PrefixFrom(address, 32), nil
			}
			if err == nil && to.Overlaps(network) {
				return false
			}
		}
	}
	return true
}

// connect makes the link to a node whose process has a network namespace, and the routes there.
// Where the node is not there, its addresses lead nowhere: nothing for them leaves the machine.
func (n *number) connect(ctx context.Context, ip string, pid int) error {
	for _, args := range [][]string{
		{"route", "replace", "blackhole", n.pods().String(), "metric", routeMetric},
		{"route", "replace", "blackhole", n.ends().String(), "metric", routeMetric},
		{"link", "add", n.link(), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid)},
		{"address", "add", n.hostAddress() + "/30", "dev", n.link()},
		{"link", "set", n.link(), "up"},
		{"route", "replace", n.pods().String(), "via", n.nodeAddress()},
	} {
		if out, err := exec.CommandContext(ctx, ip, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	// So pods of one node reach those of another. They have no routes to anywhere else.
	return os.WriteFile("/proc/sys/net/ipv4/conf/"+n.link()+"/forwarding", []byte("1"), 0)
}

// removeLink deletes the link, unless it is gone with the namespace of the node.
func (n *number) removeLink() error {
	if _, err := net.InterfaceByName(n.link()); err != nil {
		return nil //nolint:nilerr // there is none
	}
	out, err := exec.Command("ip", "link", "delete", n.link()).CombinedOutput()
	if err != nil {
		if _, gone := net.InterfaceByName(n.link()); gone == nil {
			return fmt.Errorf("deleting link %s: %w: %s", n.link(), err, out)
		}
	}
	return nil
}

// clean removes what a node with this number has on the machine: the link, if it is not gone
// with the namespace, routes and cgroups.
func (n *number) clean() error {
	routes, err := blackholes()
	if err != nil {
		return err
	}
	return n.cleanWith(routes)
}

// blackholes returns all routes that lead nowhere.
func blackholes() (string, error) {
	out, err := exec.Command("ip", "-4", "route", "show", "type", "blackhole").Output()
	if err != nil {
		return "", fmt.Errorf("asking for routes: %w", err)
	}
	return string(out), nil
}

// cleanWith is clean, where the routes that lead nowhere are known.
func (n *number) cleanWith(routes string) error {
	if err := n.removeLink(); err != nil {
		return err
	}
	for _, network := range networks {
		of := number{n: n.n, network: network}
		for _, prefix := range []netip.Prefix{of.pods(), of.ends()} {
			if !strings.Contains(routes, "blackhole "+prefix.String()+" metric "+routeMetric) {
				continue
			}
			if out, err := exec.Command("ip", "route", "delete", "blackhole", prefix.String(), "metric", routeMetric).CombinedOutput(); err != nil {
				return fmt.Errorf("deleting the route of %s: %w: %s", prefix, err, out)
			}
		}
	}
	return removeCgroups(n.cgroup())
}
