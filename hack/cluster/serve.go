// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandlot-io/sandlot/pkg/datadir"
	"github.com/sandlot-io/sandlot/pkg/testutil/controlplane"
)

// serve runs everything until the context ends.
func serve(ctx context.Context, o options) (err error) {
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	held, err := datadir.Open(o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()

	o.plane.Dir = o.dir
	plane, err := controlplane.Start(ctx, o.plane)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	sandlot, err := plane.Install(ctx, o.sandlot)
	if err != nil {
		return err
	}
	s := &state{Kubeconfig: plane.Kubeconfig(), Server: process{Name: "serve", Pid: os.Getpid()}}
	for _, p := range append(plane.Processes(), sandlot.Processes()...) {
		s.Children = append(s.Children, process{Name: filepath.Base(p.Path()), Pid: p.Pid()})
	}
	if err := s.write(o.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(stateFile(o.dir))) }()
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}
