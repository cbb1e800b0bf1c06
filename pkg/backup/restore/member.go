// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/sandlot-io/sandlot/pkg/backup"
	"github.com/sandlot-io/sandlot/pkg/store/embeddedetcd"
)

const (
	// recordName is a file beside the data of a member: the id under which that was restored.
	recordName = "restored"
	// downloadName is a snapshot that is being fetched.
	downloadName = "restoring.db"

	retryFetch = 2 * time.Second
)

// Member is a member of the store that has not started. Either EmbeddedDir is set, for the etcd
// inside an API server, or what follows it, for one of its own.
type Member struct {
	// SecretDir is where the Secret is mounted. It may be empty or missing.
	SecretDir string
	// From is the URL of the Job, https://HOST:PORT.
	From string
	// TerminationLog is the file for the last words of the container.
	TerminationLog string

	// EmbeddedDir is the data folder of the API server.
	EmbeddedDir string

	// DataDir, Name and the rest are what the flags of etcd say.
	DataDir                  string
	Name                     string
	InitialCluster           string
	InitialAdvertisePeerURLs string
}

// errChanged means that the Secret speaks of another attempt now.
var errChanged = errors.New("the restore has begun anew")

// Run replaces the data of the member by what a Job offers, unless it has been before. It
// returns when the member may start, and waits as long as there is something to fetch that
// cannot be had.
func (m Member) Run(ctx context.Context) error {
	if err := m.validate(); err != nil {
		return err
	}
	log := klog.FromContext(ctx)
	return wait.PollUntilContextCancel(ctx, retryFetch, true, func(ctx context.Context) (bool, error) {
		id, err := m.read(keyID)
		if err != nil {
			return false, err
		}
		if id == "" {
			return true, nil
		}
		recorded, err := os.ReadFile(m.record())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if string(recorded) != id {
			if err := m.restore(ctx, id); err != nil {
				log.Error(err, "Not restored yet, trying again", "id", id)
				return false, nil
			}
			log.Info("Restored", "id", id, "data", m.data())
		}
		return true, os.WriteFile(m.TerminationLog, []byte(id), 0o600)
	})
}

func (m Member) validate() error {
	if m.EmbeddedDir != "" {
		return nil
	}
	for flag, value := range map[string]string{
		"data-dir": m.DataDir, "name": m.Name, "initial-cluster": m.InitialCluster, "initial-advertise-peer-urls": m.InitialAdvertisePeerURLs,
	} {
		if value == "" {
			return fmt.Errorf("--embedded-etcd-dir, or --%s and the others of etcd, are required", flag)
		}
	}
	return nil
}

func (m Member) data() string {
	if m.EmbeddedDir != "" {
		return m.EmbeddedDir
	}
	return m.DataDir
}

// beside is a file on the volume of the data.
func (m Member) beside(name string) string { return filepath.Join(filepath.Dir(m.data()), name) }

func (m Member) record() string { return m.beside(recordName) }

// read returns what the Secret has under a key, or nothing.
func (m Member) read(key string) (string, error) {
	text, err := os.ReadFile(filepath.Join(m.SecretDir, key))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

func (m Member) restore(ctx context.Context, id string) (err error) {
	file := m.beside(downloadName)
	defer func() { err = errors.Join(err, os.RemoveAll(file)) }()
	if err := m.fetch(ctx, file); err != nil {
		return err
	}
	if now, err := m.read(keyID); err != nil || now != id {
		return errors.Join(errChanged, err)
	}
	// The data before goes now: there may be no room for three times the store.
	if m.EmbeddedDir != "" {
		err = embeddedetcd.Restore(ctx, m.EmbeddedDir, embeddedetcd.RestoreOptions{Snapshot: file})
	} else {
		err = m.restoreEtcd(ctx, file, id)
	}
	if err != nil {
		return err
	}
	return writeDurably(m.record(), id)
}

func (m Member) restoreEtcd(ctx context.Context, file, id string) error {
	if err := os.RemoveAll(m.DataDir); err != nil {
		return err
	}
	err := embeddedetcd.RestoreMember(ctx, snapshot.RestoreConfig{
		SnapshotPath:   file,
		Name:           m.Name,
		OutputDataDir:  m.DataDir,
		PeerURLs:       strings.Split(m.InitialAdvertisePeerURLs, ","),
		InitialCluster: m.InitialCluster,
		// Another cluster than before: a member that has old data would be refused by those
		// that have been restored, and they by it.
		InitialClusterToken: "sandlot-" + id,
	})
	if err != nil {
		return fmt.Errorf("restoring the data of %s: %w", m.Name, err)
	}
	return nil
}

// fetch fetches the snapshot, and returns nil if it is the one that the Secret speaks of.
func (m Member) fetch(ctx context.Context, file string) error {
	token, tokenErr := m.read(keyToken)
	ca, caErr := m.read(keyCA)
	want, sumErr := m.read(keySHA256)
	if err := errors.Join(tokenErr, caErr, sumErr); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	transport := &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS13},
		ResponseHeaderTimeout: time.Minute,
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(m.From, "/")+snapshotPath, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", request.URL, response.Status)
	}
	sum, err := backup.WriteFile(file, response.Body)
	if err == nil && sum != want {
		err = fmt.Errorf("the snapshot has SHA-256 %s, not %s", sum, want)
	}
	return err
}

// writeDurably writes a file that outlives a crash of the machine, all of it or nothing.
func writeDurably(path, text string) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, fileutil.Fsync(file), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fsync(dir), dir.Close())
}
