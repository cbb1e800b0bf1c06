// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/backup"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

// prepareOptions are those of the command prepare.
type prepareOptions struct {
	snapshot, encryptionConfig, prefix, output string
}

// newPrepareCommand returns the command that does for an etcd outside of the install what a
// restore does for one inside.
func newPrepareCommand() *cobra.Command {
	var o prepareOptions
	cmd := &cobra.Command{
		Use:   "prepare SNAPSHOT",
		Short: "Make of a snapshot of an etcd of yours what it may be restored from",
		Long: "Read a file of \"etcdctl snapshot save\" and write the one for \"etcdutl snapshot restore\":\n" +
			"with empty pools, because a sandbox that was in one may have been handed out since, and\n" +
			"with a revision that no client has seen. It takes room for three times the store beside\n" +
			"the output.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			memory.FollowLimit(cmd.ErrOrStderr())
			o.snapshot = args[0]
			return o.run(cmd.Context(), cmd.OutOrStdout(), clock.RealClock{})
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", o.output, "File to write, which must not be there.")
	cmd.Flags().StringVar(&o.encryptionConfig, "encryption-provider-config", o.encryptionConfig, ""+
		"File with the configuration of encryption at rest: what is under config.yaml in Secret sandlot-encryption. Empty if nothing is encrypted.")
	cmd.Flags().StringVar(&o.prefix, "etcd-prefix", backup.DefaultPrefix, "What --etcd-prefix is of the API servers.")
	return cmd
}

func (o *prepareOptions) run(ctx context.Context, out io.Writer, clock clock.PassiveClock) (err error) {
	if o.output == "" {
		return errors.New("--output is required")
	}
	if _, err := os.Lstat(o.output); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("--output %s: it must not be there", o.output), err)
	}
	snapshot, err := backup.ReadSnapshot(ctx, o.snapshot, o.encryptionConfig)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(o.output), ".sandlot-prepare-")
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	prepared, err := backup.Prepare(ctx, snapshot, scratch, o.prefix, clock.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", o.snapshot, err)
	}
	if err := os.Rename(prepared.Path, o.output); err != nil {
		return err
	}
	if prepared.Breach != nil {
		fmt.Fprintf(out, "the store is not well, and can be restored all the same: %v\n", prepared.Breach)
	}
	_, err = fmt.Fprintf(out, "wrote %s: %d sandboxes are no longer in pools, revision %d\n", o.output, prepared.Emptied, prepared.Revision)
	return err
}
