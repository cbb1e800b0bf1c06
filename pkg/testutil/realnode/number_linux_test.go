// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

func TestMain(m *testing.M) {
	MaybeRunNode()
	os.Exit(m.Run())
}

// TestRemoveLeftovers: what a killed node leaves on the machine is removed by the next that looks, and what
// a node has that runs is left alone.
func TestRemoveLeftovers(t *testing.T) {
	if err := checkNamespaces(); err != nil {
		t.Skip(err)
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Skip(err)
	}
	killed, running := startLink(t, ip), startLink(t, ip)
	if err := errors.Join(killed.cmd.Process.Kill(), killed.number.release()); err != nil {
		t.Fatal(err)
	}
	if got := left(t, killed.number); len(got) < 3 {
		t.Fatalf("a killed node leaves only %q", got)
	}
	had := left(t, running.number)
	if err := RemoveLeftovers(); err != nil {
		t.Fatal(err)
	}
	if got := left(t, killed.number); len(got) > 0 {
		t.Errorf("a killed node has left %q", got)
	}
	if got := left(t, running.number); len(got) != len(had) {
		t.Errorf("a running node has %q, and had %q", got, had)
	}
	again, err := takeNumber(killed.file)
	if err != nil {
		t.Fatal(err)
	}
	if again.n != killed.number.n {
		t.Errorf("a node that had number %d gets %d", killed.number.n, again.n)
	}
	if err := again.release(); err != nil {
		t.Error(err)
	}
}

// linked is the first process of a node, which waits for its configuration.
type linked struct {
	number *number
	file   string
	cmd    *exec.Cmd
}

func startLink(t *testing.T, ip string) *linked {
	t.Helper()
	l := &linked{file: filepath.Join(t.TempDir(), "number"), cmd: exec.Command("/proc/self/exe")}
	var err error
	if l.number, err = takeNumber(l.file); err != nil {
		t.Fatal(err)
	}
	l.cmd.Env = []string{mainVariable + "=" + mainNode}
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if _, err := l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := program.StartChild(l.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill()
		_ = l.cmd.Wait()
		if err := errors.Join(l.number.clean(), ignoreClosed(l.number.release())); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(makeCgroups(l.number.cgroup()), l.number.connect(t.Context(), ip, l.cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	// As kubelets make them.
	mounts, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range mounts {
		if err := os.MkdirAll(filepath.Join(mount, l.number.cgroup(), "kubepods", "pod"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// left is what there is of a node on this machine.
func left(t *testing.T, n *number) []string {
	t.Helper()
	var found []string
	if _, err := net.InterfaceByName(n.link()); err == nil {
		found = append(found, n.link())
	}
	out, err := exec.Command("ip", "-4", "route", "show").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "blackhole "+n.pods().String()) || strings.Contains(line, "blackhole "+n.ends().String()) {
			found = append(found, line)
		}
	}
	mounts, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range mounts {
		dir := filepath.Join(mount, n.cgroup())
		if _, err := os.Stat(dir); err == nil {
			found = append(found, dir)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return found
}

func TestIsFree(t *testing.T) {
	network := netip.MustParsePrefix("10.232.0.0/16")
	for routes, want := range map[string]bool{
		"default via 192.168.1.1 dev eth0\n192.168.1.0/24 dev eth0 proto kernel": true,
		"10.232.1.0/24 via 10.232.254.2 dev sandlot1":                            true,
		"local 10.232.254.1 dev sandlot1 table local proto kernel":               true,
		"blackhole 10.232.1.0/24 metric 4096":                                    true,
		"10.0.0.0/8 via 192.168.1.7 dev eth0":                                    false,
		"10.232.7.0/24 dev docker0 proto kernel":                                 false,
		"local 10.232.7.1 dev docker0 table local":                               false,
		"blackhole 10.232.1.0/24":                                                false,
	} {
		if got := isFree(network, routes); got != want {
			t.Errorf("with %q it is free: %t", routes, got)
		}
	}
}
