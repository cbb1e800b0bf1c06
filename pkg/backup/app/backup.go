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

	"filippo.io/age"
	"github.com/spf13/cobra"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/backup"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

// The files of a service account in a pod.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// ExitBreach is the code that the program ends with after a backup of a store that breaks
// invariants. The CronJob has a rule for it: another attempt would only take another one.
const ExitBreach = 3

type backupOptions struct {
	targetFlags
	server, caFile, tokenFile string
	encryptionConfig          string
	retention                 backup.Retention
}

// NewBackupCommand returns the command backup.
func NewBackupCommand() *cobra.Command {
	o := backupOptions{tokenFile: serviceAccountToken, retention: backup.Retention{Count: 12}}
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Take a backup of the store, restore it on trial, and delete old ones",
		Long: "Take a snapshot of the store of an API server with --serve-snapshots, restore it into an\n" +
			"etcd of its own and check what is in there. If that can be read, write it to the target\n" +
			"as a backup and read it back, and then delete the backups that are not kept. If anything\n" +
			"fails, no other is deleted.\n\n" +
			"If the store breaks invariants the command ends with 3. The backup says so in its name, and\n" +
			"takes the place of no other than the one before it of that kind.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			memory.FollowLimit(cmd.ErrOrStderr())
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.addTo(cmd.Flags())
	cmd.Flags().StringVar(&o.server, "apiserver", o.server, "URL of the API server whose store is backed up, https://HOST.")
	cmd.Flags().StringVar(&o.caFile, "ca-file", o.caFile, "File with the CAs of the API server.")
	cmd.Flags().StringVar(&o.tokenFile, "token-file", o.tokenFile, "File with the token of a user that may get /sandlot/snapshot.")
	cmd.Flags().StringVar(&o.encryptionConfig, "encryption-provider-config", o.encryptionConfig, ""+
		"File with the API servers' configuration of encryption at rest, if it is there. The backup holds it: it is as secret as the store itself.")
	cmd.Flags().IntVar(&o.retention.Count, "keep", o.retention.Count, "How many of the newest backups are kept.")
	cmd.Flags().DurationVar(&o.retention.Age, "keep-for", o.retention.Age, "Keep backups that are younger than this too.")
	cmd.AddCommand(newListCommand(), newCheckCommand())
	return cmd
}

func (o *backupOptions) run(ctx context.Context, out io.Writer) error {
	if err := o.retention.Validate(); err != nil {
		return err
	}
	target, identities, err := o.open()
	if err != nil {
		return err
	}
	source, err := backup.NewAPIServer(o.server, o.caFile, o.tokenFile)
	if err != nil {
		return err
	}
	clock := clock.RealClock{}
	taker := backup.Taker{Source: source, Target: target, Prefix: o.prefix,
		Recipients: recipients(identities), Identities: readers(identities), Scratch: o.scratch, Clock: clock}
	if taker.EncryptionConfig, err = ifThere(o.encryptionConfig); err != nil {
		return err
	}
	b, contents, err := taker.Take(ctx)
	breach := err
	if err != nil && !errors.Is(err, backup.ErrInvariants) {
		return err
	}
	fmt.Fprintf(out, "took and checked %s: %d keys, revision %d\n", b.Name, contents.Keys, contents.Revision)
	deleted, err := backup.Prune(ctx, target, o.retention, b, clock.Now())
	for _, old := range deleted {
		fmt.Fprintf(out, "deleted %s\n", old.Name)
	}
	if err = errors.Join(err, list(ctx, out, target)); err != nil {
		return err
	}
	if breach != nil {
		return utilexec.CodeExitError{Err: breach, Code: ExitBreach}
	}
	return nil
}

// check restores a backup on trial.
func (f *targetFlags) check(ctx context.Context, out io.Writer, target backup.Target, b backup.Backup, identities []age.Identity) (err error) {
	opened, err := backup.Fetch(ctx, target, b, f.scratch, identities)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	if err := backup.Check(ctx, opened, f.scratch, f.prefix); err != nil {
		return fmt.Errorf("%s is no good backup: %w", b.Name, err)
	}
	_, err = fmt.Fprintf(out, "checked %s: %d keys, revision %d\n", b.Name, opened.Contents.Keys, opened.Contents.Revision)
	return err
}

func list(ctx context.Context, out io.Writer, target backup.Target) error {
	all, err := backup.List(ctx, target)
	if err != nil {
		return err
	}
	return printBackups(out, all)
}

// ifThere returns the path, or nothing if there is no such file: a Secret that is mounted if
// it exists.
func ifThere(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return path, err
}

func newListCommand() *cobra.Command {
	var o targetFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the backups of a target, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := backup.OpenTarget(o.target)
			if err != nil {
				return err
			}
			return list(cmd.Context(), cmd.OutOrStdout(), target)
		},
	}
	cmd.Flags().StringVar(&o.target, "target", o.target, "Where backups are, as for sandlot backup.")
	return cmd
}

func newCheckCommand() *cobra.Command {
	var o targetFlags
	name := ""
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Restore a backup on trial and check what is in there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, identities, err := o.open()
			if err != nil {
				return err
			}
			b, err := backup.Find(cmd.Context(), target, name, clock.RealClock{}.Now())
			if err != nil {
				return err
			}
			return o.check(cmd.Context(), cmd.OutOrStdout(), target, b, readers(identities))
		},
	}
	o.addTo(cmd.Flags())
	cmd.Flags().StringVar(&name, "backup", name, "Name of the backup. Empty is the newest.")
	return cmd
}
