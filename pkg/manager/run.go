// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sandlot-io/sandlot/pkg/install/certificates"
	"github.com/sandlot-io/sandlot/pkg/install/encryptionkeys"
	"github.com/sandlot-io/sandlot/pkg/install/secrets"
)

// run runs all managers of sandlot-controller-manager until the context ends or
// one of them does, for what one has lost, such as its lease, is to be won again by
// a new process.
func run(ctx context.Context, cfg *rest.Config, o Options) error {
	main, err := New(cfg, o)
	if err != nil {
		return err
	}
	o = o.withDefaults()
	backups, err := newBackups(clientConfig(cfg, o), o.Namespace)
	if err != nil {
		return err
	}
	if err := main.Add(backups); err != nil {
		return err
	}
	managers := []ctrl.Manager{main}
	if keepers, err := o.keepers(clientConfig(cfg, o)); err != nil {
		return err
	} else if keepers != nil {
		managers = append(managers, keepers)
	}
	var starts []func(context.Context) error
	for _, mgr := range managers {
		starts = append(starts, mgr.Start)
	}
	return runAll(ctx, shutdownPatience, starts...)
}

// keepers returns the manager that keeps the Secrets of the install, or nil if they are
// the admin's.
func (o Options) keepers(cfg *rest.Config) (ctrl.Manager, error) {
	if !o.ManageCertificates && !o.ManageEncryptionKeys {
		return nil, nil
	}
	mgr, err := secrets.NewManager(cfg, secrets.ManagerOptions{
		Namespace: o.Certificates.Namespace, LeaderElect: o.LeaderElect, LeaderElectionNamespace: o.LeaderElectionNamespace,
	})
	if err != nil {
		return nil, err
	}
	if o.ManageCertificates {
		err = certificates.AddTo(mgr, o.Certificates)
	}
	if o.ManageEncryptionKeys && err == nil {
		err = encryptionkeys.AddTo(mgr, o.Certificates.Namespace, o.EncryptionKeys)
	}
	return mgr, err
}

// shutdownPatience is a little more than what a manager gives its own parts.
const shutdownPatience = 35 * time.Second

// errStuck means that a manager did not end when it was asked to.
var errStuck = errors.New("a manager did not end in time, and ends with the process")

// runAll starts all and returns when all have ended, which the first of them
// brings about, or the end of the context. It does not wait for ever: while the
// caches of a manager cannot be filled (Sandlot's API is away, say), controller-runtime
// does not hear that it is to end. A process that then stayed would be alive, and
// without the managers that have ended.
func runAll(ctx context.Context, patience time.Duration, starts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(starts))
	for _, start := range starts {
		go func() { ended <- start(ctx) }()
	}
	var errs []error
	left := len(starts)
	select {
	case err := <-ended:
		errs = append(errs, err)
		left--
	case <-ctx.Done():
	}
	cancel()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for ; left > 0; left-- {
		select {
		case err := <-ended:
			errs = append(errs, err)
		case <-timer.C:
			return errors.Join(append(errs, errStuck)...)
		}
	}
	return errors.Join(errs...)
}
