// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"filippo.io/age"
	"github.com/spf13/pflag"

	"github.com/sandlot-io/sandlot/pkg/backup"
)

// targetFlags say where backups are and how they are read.
type targetFlags struct {
	target, identityFile, scratch, prefix string
}

func (f *targetFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.target, "target", f.target, ""+
		"Where backups are: a folder, or s3://BUCKET/PREFIX with ?endpoint=URL, &region=REGION and &sse=AES256 or &sse=aws:kms:KEY where they are needed, and &insecure=true for an http URL. "+
		"The credentials of S3 are in the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what the cloud gives a pod.")
	fs.StringVar(&f.identityFile, "identity-file", f.identityFile, ""+
		"File with an identity of age (age-keygen). Backups are encrypted for it, and can be read with it only.")
	fs.StringVar(&f.prefix, "etcd-prefix", backup.DefaultPrefix, "What --etcd-prefix is of the API servers whose store is in the backup.")
	fs.StringVar(&f.scratch, "scratch-dir", os.TempDir(), "Folder for files that are needed meanwhile, with room for four times the store.")
}

func (f *targetFlags) open() (backup.Target, []*age.X25519Identity, error) {
	target, err := backup.OpenTarget(f.target)
	if err != nil || f.identityFile == "" {
		return target, nil, err
	}
	file, err := os.Open(f.identityFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--identity-file: %w", err)
	}
	parsed, err := age.ParseIdentities(io.LimitReader(file, 1<<16))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, nil, fmt.Errorf("--identity-file %s: %w", f.identityFile, err)
	}
	var identities []*age.X25519Identity
	for _, one := range parsed {
		identity, ok := one.(*age.X25519Identity)
		if !ok {
			return nil, nil, fmt.Errorf("--identity-file %s: only X25519 identities (AGE-SECRET-KEY-1…) can be used", f.identityFile)
		}
		identities = append(identities, identity)
	}
	return target, identities, nil
}

func recipients(identities []*age.X25519Identity) []age.Recipient {
	var all []age.Recipient
	for _, identity := range identities {
		all = append(all, identity.Recipient())
	}
	return all
}

func readers(identities []*age.X25519Identity) []age.Identity {
	var all []age.Identity
	for _, identity := range identities {
		all = append(all, identity)
	}
	return all
}

// printBackups writes a table of backups.
func printBackups(out io.Writer, all []backup.Backup) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tTAKEN\tREVISION\tBYTES\tSTORE")
	for _, b := range all {
		store := "well"
		if b.Breached {
			store = "breaks invariants"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", b.Name, b.Taken.Format(time.RFC3339), b.Revision, b.Size, store)
	}
	return w.Flush()
}
