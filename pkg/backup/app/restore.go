// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/backup/restore"
	"github.com/sandlot-io/sandlot/pkg/memory"
)

// NewRestoreCommand returns the command restore.
func NewRestoreCommand() *cobra.Command {
	var flags targetFlags
	job := restore.Job{Address: ":8443", Members: 1, Namespace: os.Getenv("POD_NAMESPACE"), ID: os.Getenv("JOB_ID"), Backup: os.Getenv("BACKUP"), Clock: clock.RealClock{}}
	kubeconfig, store := "", ""
	var users []string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore the store of an install from a backup",
		Long: "Restore the store of an install from a backup: prepare it, stop everything that uses the\n" +
			"store, have the members of the store take the data, and start everything again. What was\n" +
			"stored after the backup is lost. It is what the CronJob sandlot-restore of an install runs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			memory.FollowLimit(cmd.ErrOrStderr())
			target, identities, err := flags.open()
			if err != nil {
				return err
			}
			job.Target, job.Identities, job.Scratch, job.Prefix = target, readers(identities), flags.scratch, flags.prefix
			if job.Store, err = restore.ParseWorkload(store); err != nil {
				return fmt.Errorf("--store: %w", err)
			}
			for _, text := range users {
				user, err := restore.ParseWorkload(text)
				if err != nil {
					return fmt.Errorf("--users: %w", err)
				}
				job.Users = append(job.Users, user)
			}
			if job.Namespace == "" {
				return errors.New("--namespace is required")
			}
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			if job.Client, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			return job.Run(cmd.Context())
		},
	}
	flags.addTo(cmd.Flags())
	cmd.Flags().StringVar(&job.Backup, "backup", job.Backup, "Name of the backup. Empty is the newest. The default is in the environment variable BACKUP.")
	cmd.Flags().BoolVar(&job.KeysOnly, "keys-only", job.KeysOnly, "Add the keys of the encryption at rest to those of the install, and restore nothing else.")
	cmd.Flags().StringVar(&job.Namespace, "namespace", job.Namespace, "Namespace of the install. The default is in the environment variable POD_NAMESPACE.")
	cmd.Flags().StringVar(&store, "store", store, "What runs the store: statefulset/NAME.")
	cmd.Flags().Int32Var(&job.Members, "members", job.Members, "How many members the store has.")
	cmd.Flags().StringSliceVar(&users, "users", users, "What else uses the store, in the order of its start: deployment/NAME or statefulset/NAME.")
	cmd.Flags().StringVar(&job.Address, "bind-address", job.Address, "Where the members of the store fetch the data.")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", kubeconfig, "Client configuration for the cluster. Empty is that of a pod.")
	cmd.AddCommand(newMemberCommand(), newPrepareCommand())
	return cmd
}

func newMemberCommand() *cobra.Command {
	var m restore.Member
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Take the data that a restore offers, before a member of the store starts",
		Long: "Replace the data of a member of the store by what sandlot restore offers, if it offers\n" +
			"something that this volume has not had. It is what the init container restore runs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.Run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&m.SecretDir, "secret-dir", m.SecretDir, "Folder with the files of the Secret "+restore.SecretName+".")
	fs.StringVar(&m.From, "from", m.From, "URL of the restore, https://HOST:PORT.")
	fs.StringVar(&m.TerminationLog, "termination-log", "/dev/termination-log", "File for the id of the restore whose data the member has.")
	fs.StringVar(&m.EmbeddedDir, "embedded-etcd-dir", m.EmbeddedDir, "Data folder of an API server with its etcd inside. The following are for an etcd of its own.")
	fs.StringVar(&m.DataDir, "data-dir", m.DataDir, "As for etcd.")
	fs.StringVar(&m.Name, "name", m.Name, "As for etcd.")
	fs.StringVar(&m.InitialCluster, "initial-cluster", m.InitialCluster, "As for etcd.")
	fs.StringVar(&m.InitialAdvertisePeerURLs, "initial-advertise-peer-urls", m.InitialAdvertisePeerURLs, "As for etcd.")
	return cmd
}
