// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

const (
	// mainVariable says what MaybeRunNode does instead of what the program is for.
	mainVariable = "SANDLOT_REAL_NODE"
	mainNode     = "node"
	mainTry      = "try"
)

// MaybeRunNode runs a node if this process was started as one, and does not return then. A program that
// starts nodes calls it first in main or TestMain.
func MaybeRunNode() {
	switch os.Getenv(mainVariable) {
	case "":
		return
	case mainTry:
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "Error:", runNode())
	os.Exit(1)
}

// runNode is process 1 of a node. It returns only an error, and then the kernel ends all others.
func runNode() error {
	var config bootConfig
	// It comes when the link is there.
	if err := json.NewDecoder(os.Stdin).Decode(&config); err != nil {
		return fmt.Errorf("reading what the node is to be: %w", err)
	}
	if err := unix.Sethostname([]byte(config.Name)); err != nil {
		return err
	}
	if err := config.makeMounts(); err != nil {
		return err
	}
	if err := config.makeNetwork(); err != nil {
		return err
	}
	if err := os.Unsetenv(mainVariable); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"HOME": "/root", "PATH": insidePrograms + ":/usr/sbin:/usr/bin:/sbin:/bin",
		"KUBERNETES_SERVICE_HOST": controlplane.ServiceAddress, "KUBERNETES_SERVICE_PORT": "443",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	children := newChildren()
	go children.keep("containerd", "--config", insideEtc+"/containerd.toml")
	if err := awaitSocket(containerdSocket); err != nil {
		return err
	}
	// Import images first: the kubelet backs off if it does not find them.
	for i := range config.Images {
		if err := children.run("ctr", "--namespace", "k8s.io", "images", "import", "--no-unpack", imageInside(i)); err != nil {
			return err
		}
	}
	go children.keep("kubelet",
		"--config="+insideEtc+"/kubelet.yaml",
		"--kubeconfig="+insideEtc+"/kubelet.kubeconfig",
		"--hostname-override="+config.Name,
		"--node-ip="+config.NodeAddress,
		"--node-labels="+Label+"=true",
	)
	if config.IPTables != "" {
		go children.keep(controlplane.PolicyProgram,
			"--hostname-override="+config.Name, "--nfqueue-id="+queue, "--metrics-bind-address=127.0.0.1:9080", "--v=2")
	}
	select {}
}

func imageInside(i int) string { return fmt.Sprintf("%s/%d.tar", insideImages, i) }

// mounted is a file or folder of the machine, and where the node has it.
type mounted struct{ from, to string }

// makeMounts lets the node have what is its own in place of what is the machine's: /run, /var/lib
// and /var/log, and the settings of the kernel that a kubelet changes.
func (c *bootConfig) makeMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts to the node: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	all := []mounted{
		{c.Dir, inside},
		{filepath.Join(c.Dir, folderLib), "/var/lib"},
		{filepath.Join(c.Dir, folderVarLog), "/var/log"},
		{filepath.Join(c.Dir, folderAccount), "/run/secrets/kubernetes.io/serviceaccount"},
	}
	for _, path := range c.Programs {
		all = append(all, mounted{path, filepath.Join(insidePrograms, filepath.Base(path))})
	}
	for i, path := range c.Images {
		all = append(all, mounted{path, imageInside(i)})
	}
	// Opened first: what they are mounted over may hide them.
	files := make([]*os.File, len(all))
	for i, m := range all {
		var err error
		if files[i], err = os.Open(m.from); err != nil {
			return err
		}
		defer files[i].Close()
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	for i, m := range all {
		if err := bind(files[i], m.to); err != nil {
			return err
		}
	}
	// Mounts that the kubelet makes have to be seen in containers.
	const kubeletFolder = "/var/lib/kubelet"
	if err := os.MkdirAll(kubeletFolder, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(kubeletFolder, kubeletFolder, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", kubeletFolder, err)
	}
	if err := unix.Mount("", kubeletFolder, "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts of %s: %w", kubeletFolder, err)
	}
	return hideSettings()
}

// bind mounts a file or folder somewhere else.
func bind(file *os.File, to string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else {
		err = os.WriteFile(to, nil, 0o755)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", file.Name(), to, err)
	}
	return nil
}

// kernelSettings are those that a kubelet sets for the whole machine, as it wants them.
var kernelSettings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
	"kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// hideSettings mounts files over these settings, so that the kubelet does not change those of the machine.
func hideSettings() error {
	for name, value := range kernelSettings {
		setting := "/proc/sys/" + name
		if _, err := os.Stat(setting); err != nil {
			continue // this kernel has none
		}
		own := "/run/settings/" + strings.ReplaceAll(name, "/", "-")
		if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(own, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(own, setting, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting over %s: %w", setting, err)
		}
	}
	return nil
}

// makeNetwork sets up the node's end of the link. There is no way to anywhere but to the host's
// end and to other nodes.
func (c *bootConfig) makeNetwork() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", c.NodeAddress + "/30", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", c.Network, "via", c.HostAddress},
		{"route", "add", "unreachable", "default"},
	} {
		if out, err := exec.Command(filepath.Join(insidePrograms, "ip"), args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s in the node: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	if c.IPTables != "" {
		if err := c.makeFilters(); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// awaitSocket returns when something listens there.
func awaitSocket(path string) error {
	return wait.PollUntilContextTimeout(context.Background(), readyInterval, startPatience, true, func(ctx context.Context) (bool, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return false, nil //nolint:nilerr // it is tried again
		}
		return true, conn.Close()
	})
}
