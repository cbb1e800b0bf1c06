// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"filippo.io/age"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/backup"
)

// poll is how often the cluster is looked at while pods come and go.
const poll = time.Second

// Job restores the store of the install in a namespace.
type Job struct {
	Client    kubernetes.Interface
	Namespace string
	// ID tells attempts of one Job from another Job. Empty is one of its own.
	ID string
	// Target has the backup of the name Backup, or the newest if that is empty. Identities
	// decrypt it.
	Target     backup.Target
	Backup     string
	Identities []age.Identity
	// KeysOnly restores the keys of the encryption at rest and nothing else: for a store that
	// is there and an install that has lost its keys.
	KeysOnly bool
	// Prefix begins the keys of the store.
	Prefix string
	// Scratch is a folder with room for four times the store.
	Scratch string
	// Store is what runs the store, of so many Members.
	Store   Workload
	Members int32
	// Users are the other workloads that use the store, in the order of their start.
	Users []Workload
	// Address is where the members fetch the snapshot.
	Address string
	Clock   clock.PassiveClock
}

// Run restores. Until the backup was read, checked and prepared it stops nothing. It returns
// when everything runs again on the restored store. It is ErrOvertaken if a Job restores that has
// begun after this one.
func (j Job) Run(ctx context.Context) error {
	c := cluster{j.Client, j.Namespace}
	if j.KeysOnly {
		return j.restoreKeys(ctx, c)
	}
	s, err := c.readState(ctx, cmp.Or(j.ID, rand.Text()))
	if err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	switch {
	case s.hasStarted():
		klog.FromContext(ctx).Info("An attempt before this one has restored the store and started everything")
		return nil
	case s.hasRestored():
		return j.start(ctx, s)
	}
	handed, err := j.isHanded(ctx, s)
	switch {
	case err != nil:
		return err
	case handed:
		// It may be in use since then: to restore it again would lose what was answered.
		klog.FromContext(ctx).Info("An attempt before this one has restored the store")
		err = j.startStore(ctx, s, s.offered())
	default:
		err = j.restore(ctx, s)
	}
	if err != nil {
		return err
	}
	if err := s.restored(ctx); err != nil {
		return err
	}
	return j.start(ctx, s)
}

// isHanded reports whether all members of the store run with what this Job has offered them.
func (j Job) isHanded(ctx context.Context, s *state) (bool, error) {
	id := s.offered()
	if id == "" {
		return false, nil
	}
	restored, _, err := j.countMembers(ctx, s, id)
	return restored == int(j.Members), err
}

// countMembers returns how many members of the store run with the data of an id, and how many of
// these are ready.
func (j Job) countMembers(ctx context.Context, s *state, id string) (restored, ready int, err error) {
	pods, err := s.pods(ctx, j.Store)
	for i := range pods {
		if hasRestored(&pods[i], id) {
			restored++
			if isReady(&pods[i]) {
				ready++
			}
		}
	}
	return restored, ready, err
}

// fetch fetches the backup.
func (j Job) fetch(ctx context.Context) (*backup.Opened, error) {
	b, err := backup.Find(ctx, j.Target, j.Backup, j.Clock.Now())
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Reading the backup", "backup", b.Name, "bytes", b.Size, "target", j.Target.String())
	return backup.Fetch(ctx, j.Target, b, j.Scratch, j.Identities)
}

// restoreKeys adds the keys of the backup to those of the install.
func (j Job) restoreKeys(ctx context.Context, c cluster) (err error) {
	opened, err := j.fetch(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	file := opened.Snapshot().EncryptionConfig
	if file == "" {
		return fmt.Errorf("%s has no keys: the store was not encrypted when it was taken", opened.Backup.Name)
	}
	// They are those of the store in it.
	if err := backup.Check(ctx, opened, j.Scratch, j.Prefix); err != nil && !errors.Is(err, backup.ErrInvariants) {
		return fmt.Errorf("%s: %w", opened.Backup.Name, err)
	}
	if err := keepKeys(ctx, c, file, false); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("The keys of the backup are in the Secret, and nothing else was restored", "secret", EncryptionSecret)
	return nil
}

func (j Job) restore(ctx context.Context, s *state) (err error) {
	log := klog.FromContext(ctx)
	opened, err := j.fetch(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	snapshot := opened.Snapshot()
	prepared, err := backup.Prepare(ctx, snapshot, j.Scratch, j.Prefix, j.Clock.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", opened.Backup.Name, err)
	}
	defer func() { err = errors.Join(err, os.Remove(prepared.Path)) }()
	log.Info("Checked the snapshot and emptied its pools", "taken", opened.Contents.Taken, "keys", opened.Contents.Keys,
		"removedFromPools", prepared.Emptied, "revision", prepared.Revision)

	if prepared.Breach != nil {
		log.Error(prepared.Breach, "The store is not well, and is restored all the same")
	}
	if err := keepKeys(ctx, s.cluster, snapshot.EncryptionConfig, true); err != nil {
		return err
	}
	if err := j.stop(ctx, s); err != nil {
		return err
	}
	if err := keepKeys(ctx, s.cluster, snapshot.EncryptionConfig, false); err != nil {
		return err
	}
	return j.hand(ctx, s, prepared)
}

// stop stops everything that uses the store, and then the store.
func (j Job) stop(ctx context.Context, s *state) error {
	if err := s.remember(ctx, j.Users); err != nil {
		return err
	}
	for i := range j.Users {
		if err := s.scale(ctx, j.Users[len(j.Users)-1-i], 0); err != nil {
			return err
		}
	}
	for _, w := range j.Users {
		if err := j.awaitGone(ctx, s, w); err != nil {
			return err
		}
	}
	if err := s.scale(ctx, j.Store, 0); err != nil {
		return err
	}
	return j.awaitGone(ctx, s, j.Store)
}

func (j Job) awaitGone(ctx context.Context, s *state, w Workload) error {
	return j.await(ctx, s, "the end of the pods of "+w.String(), func(ctx context.Context) (string, error) {
		if err := s.scale(ctx, w, 0); err != nil { // one that gave way may just have started it
			return "", err
		}
		pods, err := s.pods(ctx, w)
		if err != nil || len(pods) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d pods are there, such as %s", len(pods), pods[0].Name), nil
	})
}

// hand starts the store, and returns when all members have the snapshot and are ready.
func (j Job) hand(ctx context.Context, s *state, p backup.Prepared) error {
	srv, err := newServer(j.Address, p.Path)
	if err != nil {
		return err
	}
	id := rand.Text()
	if err := s.offer(ctx, id, srv, p.SHA256); err != nil {
		return errors.Join(err, srv.listener.Close())
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return srv.run(ctx) })
	group.Go(func() error {
		defer done()
		return j.startStore(ctx, s, id)
	})
	return group.Wait()
}

// startStore returns when all members of the store run with the data of an id and are ready.
func (j Job) startStore(ctx context.Context, s *state, id string) error {
	return j.await(ctx, s, "the store to be restored", func(ctx context.Context) (string, error) {
		if err := s.scale(ctx, j.Store, j.Members); err != nil {
			return "", err
		}
		restored, ready, err := j.countMembers(ctx, s, id)
		if err != nil || ready == int(j.Members) {
			return "", err
		}
		return fmt.Sprintf("of %d members %d have the data and %d are ready", j.Members, restored, ready), nil
	})
}

// start starts what uses the store, one after the other, with as many pods as before, or one
// if there were none.
func (j Job) start(ctx context.Context, s *state) error {
	known, err := replicasIn(s.secret.Data)
	if err != nil {
		return err
	}
	for _, w := range j.Users {
		err := j.await(ctx, s, "a pod of "+w.String()+" to be ready", func(ctx context.Context) (string, error) {
			// One that gave way may have stopped either of them.
			if err := errors.Join(s.scale(ctx, j.Store, j.Members), s.scale(ctx, w, max(1, known[w.String()]))); err != nil {
				return "", err
			}
			pods, err := s.pods(ctx, w)
			if err != nil {
				return "", err
			}
			for i := range pods {
				if isReady(&pods[i]) {
					return "", nil
				}
			}
			return fmt.Sprintf("none of %d is", len(pods)), nil
		})
		if err != nil {
			return err
		}
	}
	return s.started(ctx)
}

// await returns when check has nothing to wait for any more, and logs what it waits for when
// that changes. It ends when another restore continues, before check would do anything.
func (j Job) await(ctx context.Context, s *state, what string, check func(context.Context) (string, error)) error {
	log := klog.FromContext(ctx)
	last := ""
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		missing, err := "", s.checkOwn(ctx)
		if errors.Is(err, ErrOvertaken) || errors.Is(err, errRetried) {
			return false, err
		}
		if err == nil {
			missing, err = check(ctx)
		}
		if err != nil {
			missing = err.Error() // it may be a moment's: the next attempt would only ask again
		}
		if missing != "" && missing != last {
			log.Info("Waiting for "+what, "now", missing)
			last = missing
		}
		return missing == "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}
