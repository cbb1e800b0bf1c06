// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// SecretName is the Secret in which Jobs and the members of the store meet. It is part of the
// install. After a restore it has only which Jobs there were.
const SecretName = "sandlot-restore"

// What is in it. The first four are for members.
const (
	keyID     = "id"     // of this offer
	keyToken  = "token"  // for whom the Job serves the snapshot
	keyCA     = "ca.crt" // of the Job's certificate
	keySHA256 = "sha256" // of the snapshot
	// The id of the Job whose offer that is, and of the one that has restored the store.
	keyOfferedBy = "offeredBy"
	keyRestored  = "restoredBy"
	keyReplicas  = "replicas" // there while something is to be started
	// keyJobs has the Jobs that have begun, and keyActive the id of the one that stops and
	// restores. One that began before it gives way, whenever it is tried again; one that came
	// later and cannot restore does it no harm.
	keyJobs   = "jobs"
	keyActive = "active"

	mostJobs = 16
)

// ErrOvertaken means that a Job restores that has begun after this one, which gives way.
var ErrOvertaken = errors.New("another restore has begun, and this one gives way")

// errRetried means that another attempt of the same Job has begun: one whose node was taken for
// lost may live on.
var errRetried = errors.New("another attempt of this restore has begun, and this one gives way")

// attempt is the last one of a Job that has begun.
type attempt struct{ job, id string }

// state is what restores remember in the Secret.
type state struct {
	cluster
	secret *corev1.Secret
	// self is the Job and the attempt that remembers it.
	self  attempt
	begun bool
}

func (c cluster) readState(ctx context.Context, job string) (*state, error) {
	s := &state{cluster: c, self: attempt{job, rand.Text()}}
	return s, s.read(ctx)
}

func (s *state) read(ctx context.Context) error {
	secret, err := s.client.CoreV1().Secrets(s.namespace).Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Secret %s, which is part of the install: %w", SecretName, err)
	}
	s.secret = secret
	return nil
}

// write changes what is in the Secret. It is ErrOvertaken or errRetried if another continues.
func (s *state) write(ctx context.Context, change func(data map[string][]byte)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		next := s.secret.DeepCopy()
		if next.Data == nil {
			next.Data = map[string][]byte{}
		}
		change(next.Data)
		next, err := s.client.CoreV1().Secrets(s.namespace).Update(ctx, next, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return cmp.Or(s.checkOwn(ctx), err)
		}
		if err == nil {
			s.secret = next
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", SecretName, err)
	}
	return nil
}

// begin notes this attempt. It is ErrOvertaken if a Job that began after this one restores, or
// has.
func (s *state) begin(ctx context.Context) error {
	err := s.write(ctx, func(data map[string][]byte) {
		all := attempts(data)
		if i := s.place(all); i >= 0 {
			all[i] = s.self
		} else {
			all = append(all, s.self)
		}
		var lines []string
		for _, a := range all[max(0, len(all)-mostJobs):] {
			lines = append(lines, a.job+" "+a.id)
		}
		data[keyJobs] = []byte(strings.Join(lines, "\n"))
	})
	if err != nil {
		return err
	}
	s.begun = true
	return s.own()
}

func attempts(data map[string][]byte) (all []attempt) {
	for line := range strings.Lines(string(data[keyJobs])) {
		if job, id, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			all = append(all, attempt{job, id})
		}
	}
	return all
}

// place is that of this Job, or -1.
func (s *state) place(all []attempt) int {
	return slices.IndexFunc(all, func(a attempt) bool { return a.job == s.self.job })
}

// own is ErrOvertaken if a Job that began after this one restores, and errRetried if this is no
// longer the last attempt of this Job.
func (s *state) own() error {
	if !s.begun {
		return nil
	}
	all := attempts(s.secret.Data)
	i := s.place(all)
	if i < 0 || all[i] != s.self {
		return errRetried
	}
	if slices.ContainsFunc(all[i+1:], func(a attempt) bool { return a.job == string(s.secret.Data[keyActive]) }) {
		return ErrOvertaken
	}
	return nil
}

// checkOwn is own by what is in the Secret now.
func (s *state) checkOwn(ctx context.Context) error { return cmp.Or(s.read(ctx), s.own()) }

// replicasIn are how many pods the workloads had before everything was stopped.
func replicasIn(data map[string][]byte) (map[string]int32, error) {
	known := map[string]int32{}
	text := data[keyReplicas]
	if len(text) == 0 {
		return known, nil
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, fmt.Errorf("%s in Secret %s: %w", keyReplicas, SecretName, err)
	}
	return known, nil
}

// remember adds how many pods workloads have, except for those that have none: they are stopped
// already. This Job is the one that restores from then on. What an earlier attempt offered is
// left until there is something else to fetch: a member that has lost its data to that attempt,
// or never had any, would start without, and the API server of an empty store has the pods of
// all sandboxes deleted. It waits, and is stopped.
func (s *state) remember(ctx context.Context, workloads []Workload) error {
	now := map[string]int32{}
	for _, w := range workloads {
		n, err := s.cluster.replicas(ctx, w)
		if err != nil {
			return err
		}
		now[w.String()] = n
	}
	var failed error
	err := s.write(ctx, func(data map[string][]byte) { failed = remembering(data, now, s.self.job) })
	return errors.Join(failed, err)
}

// remembering changes what is in the Secret when a Job begins to stop workloads.
func remembering(data map[string][]byte, replicas map[string]int32, job string) error {
	known, err := replicasIn(data)
	if err != nil {
		return err
	}
	for w, n := range replicas {
		if n > 0 {
			known[w] = n
		}
	}
	text, err := json.Marshal(known)
	if err != nil {
		return err
	}
	data[keyReplicas], data[keyActive] = text, []byte(job)
	delete(data, keyRestored)
	return nil
}

// offer tells members what to fetch.
func (s *state) offer(ctx context.Context, id string, srv *server, sha256 string) error {
	return s.write(ctx, func(data map[string][]byte) {
		data[keyOfferedBy] = []byte(s.self.job)
		data[keyID], data[keyToken], data[keyCA], data[keySHA256] = []byte(id), []byte(srv.token), srv.ca, []byte(sha256)
	})
}

// offered is the id of what this Job has told members to fetch, or empty.
func (s *state) offered() string {
	if !s.is(keyOfferedBy) {
		return ""
	}
	return string(s.secret.Data[keyID])
}

// restored notes that this Job has restored the store, and that members have nothing to fetch
// any more.
func (s *state) restored(ctx context.Context) error {
	return s.write(ctx, func(data map[string][]byte) {
		data[keyRestored] = []byte(s.self.job)
		for _, key := range []string{keyID, keyToken, keyCA, keySHA256, keyOfferedBy} {
			delete(data, key)
		}
	})
}

// hasRestored reports whether this Job has restored the store.
func (s *state) hasRestored() bool { return s.is(keyRestored) }

// started notes that all that uses the store has been started. That this Job has restored it
// stays: an attempt whose last words were lost is followed by another one.
func (s *state) started(ctx context.Context) error {
	return s.write(ctx, func(data map[string][]byte) { delete(data, keyReplicas) })
}

// hasStarted reports whether all that uses the store has been started after that.
func (s *state) hasStarted() bool {
	_, begun := s.secret.Data[keyReplicas]
	return s.hasRestored() && !begun
}

// is reports whether what is under a key is the id of this Job.
func (s *state) is(key string) bool { return string(s.secret.Data[key]) == s.self.job }
