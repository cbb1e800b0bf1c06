// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// socketsFile lists the IPv4 sockets of this machine with their users, see proc_net_tcp.rst of the kernel.
const socketsFile = "/proc/net/tcp"

// established is the state of an open socket in socketsFile. The user of a socket in another state may be wrong: that of
// one which its program has closed is given as 0.
const established = "01"

// lookups is how often a socket is looked for: while others come and go, one may be missing in socketsFile.
const lookups = 3

// sameUserListener accepts only IPv4 connections of programs on this machine that run as the user of this one.
type sameUserListener struct {
	net.Listener
	uid int
}

// Accept implements net.Listener. It closes the connections of other users.
func (l sameUserListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.isSameUser(conn) {
			return conn, nil
		}
		_ = conn.Close() // it was not served
	}
}

func (l sameUserListener) isSameUser(conn net.Conn) bool {
	for range lookups {
		if uid, err := userOf(conn); err == nil {
			return uid == l.uid
		}
	}
	return false
}

// userOf returns the user of the program at the other end of a connection. It returns an error if that is not an open
// socket of this machine.
func userOf(conn net.Conn) (int, error) {
	local, errLocal := hexAddress(conn.RemoteAddr())
	remote, errRemote := hexAddress(conn.LocalAddr())
	if err := errors.Join(errLocal, errRemote); err != nil {
		return 0, err
	}
	file, err := os.Open(socketsFile)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// sl, local_address, rem_address, st, tx_queue:rx_queue, tr:tm->when, retrnsmt, uid, timeout, inode
		fields := strings.Fields(lines.Text())
		if len(fields) >= 10 && fields[1] == local && fields[2] == remote && fields[3] == established && fields[9] != "0" {
			return strconv.Atoi(fields[7])
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("no open socket of this machine is at %s", conn.RemoteAddr())
}

// hexAddress returns an IPv4 address and port as socketsFile has it.
func hexAddress(address net.Addr) (string, error) {
	parsed, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return "", err
	}
	ip := parsed.Addr().Unmap()
	if !ip.Is4() {
		return "", fmt.Errorf("%s is no IPv4 address", address)
	}
	// The kernel prints the bytes of an address as a number in the byte order of the machine.
	octets := ip.As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(octets[:]), parsed.Port()), nil
}
