// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/localpki"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
	"github.com/sandlot-io/sandlot/pkg/testutil/program"
)

// etcd is that of Sandlot, a process of this machine that pods reach. It admits clients with a certificate only.
type etcd struct {
	cmd     *exec.Cmd
	address string
	// secret has the certificate of its clients.
	secret map[string][]byte
}

// startEtcd starts an etcd. The address of the host's end of the link is the node's own, and so are its ports.
func startEtcd(ctx context.Context, dir string) (*etcd, error) {
	path, err := controlplane.FindProgram("etcd")
	if err != nil {
		return nil, err
	}
	certs := filepath.Join(dir, "etcd-certificates")
	authority, err := localpki.OpenAuthority(certs, "ca", "etcd-ca", clock.RealClock{})
	if err != nil {
		return nil, err
	}
	server, err := authority.Issue(localpki.Leaf{CommonName: "etcd", Hosts: []string{node.HostAddress()}, Client: true})
	if err != nil {
		return nil, err
	}
	client, err := authority.Issue(localpki.Leaf{CommonName: "sandlot", Client: true})
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{"etcd.crt": server.Cert, "etcd.key": server.Key, "ca.crt": authority.CA()} {
		if err := os.WriteFile(filepath.Join(certs, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	e := &etcd{
		address: node.HostAddress() + ":2379",
		secret:  map[string][]byte{"ca.crt": authority.CA(), "tls.crt": client.Cert, "tls.key": client.Key},
	}
	log, err := os.Create(filepath.Join(dir, "log", "sandlot-etcd.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has it by then
	peer := "http://" + node.HostAddress() + ":2380"
	e.cmd = exec.CommandContext(context.WithoutCancel(ctx), path,
		"--name=sandlot", "--data-dir="+filepath.Join(dir, "sandlot-etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+e.url(), "--advertise-client-urls="+e.url(),
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=sandlot="+peer,
		"--client-cert-auth", "--trusted-ca-file="+filepath.Join(certs, "ca.crt"),
		"--cert-file="+filepath.Join(certs, "etcd.crt"), "--key-file="+filepath.Join(certs, "etcd.key"),
	)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := program.StartChild(e.cmd); err != nil {
		return nil, fmt.Errorf("starting etcd: %w", err)
	}
	return e, nil
}

func (e *etcd) url() string { return "https://" + e.address }

func (e *etcd) stop() error {
	err := e.cmd.Process.Kill()
	_ = e.cmd.Wait() // it was killed
	if errors.Is(err, os.ErrProcessDone) {
		return errors.New("the etcd of Sandlot ended unexpectedly")
	}
	return err
}
