// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// SecretName is the Secret in which a Job and the members of the store meet. It is part of
// the install. After a restore it has only which Job that was.
const SecretName = "sandlot-restore"

// What is in it. The first four are for members.
const (
	keyID     = "id"     // of this attempt
	keyToken  = "token"  // for whom the Job serves the snapshot
	keyCA     = "ca.crt" // of the Job's certificate
	keySHA256 = "sha256" // of the snapshot
	// The id of the Job whose offer that is, and of the one that has restored the store.
	keyOfferedBy = "offeredBy"
	keyRestored  = "restoredBy"
	keyReplicas  = "replicas" // there while something is to be started
	// keyJobs has the ids of the Jobs that have begun, the last one last. All others give way
	// to that one, whenever they are tried again.
	keyJobs  = "jobs"
	mostJobs = 16
)

// ErrOvertaken means that another Job has begun since, and that this one gives way to it.
var ErrOvertaken = errors.New("another restore has begun, and this one gives way")

// errRetried means that another attempt of the same Job has begun: one whose node was taken for
// lost may live on.
var errRetried = errors.New("another attempt of this restore has begun, and this one gives way")

// state is what a restore remembers in the Secret.
type state struct {
	cluster
	secret *corev1.Secret
	// job is the id of the Job that remembers it.
	job string
}

func (c cluster) readState(ctx context.Context, job string) (*state, error) {
	secret, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s, which is part of the install: %w", SecretName, err)
	}
	return &state{c, secret, job}, nil
}

// begin makes this Job the one that restores. It is ErrOvertaken if another one has begun since
// it did so for the first time.
func (s *state) begin(ctx context.Context) error {
	jobs := jobsIn(s.secret)
	switch i := slices.Index(jobs, s.job); {
	case i < 0:
		data := maps.Clone(s.secret.Data)
		if data == nil {
			data = map[string][]byte{}
		}
		jobs = append(jobs, s.job)
		data[keyJobs] = []byte(strings.Join(jobs[max(0, len(jobs)-mostJobs):], "\n"))
		return s.write(ctx, data)
	case i < len(jobs)-1:
		return ErrOvertaken
	}
	return nil
}

func jobsIn(secret *corev1.Secret) []string { return strings.Fields(string(secret.Data[keyJobs])) }

// write replaces all that is in the Secret, but for the Jobs that have begun if data has none. It
// is ErrOvertaken or errRetried if another has done so since.
func (s *state) write(ctx context.Context, data map[string][]byte) error {
	if _, begins := data[keyJobs]; !begins {
		data[keyJobs] = s.secret.Data[keyJobs]
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		next := s.secret.DeepCopy()
		next.Data = data
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

// checkOwn is ErrOvertaken if another Job has begun, and errRetried if another attempt of this one
// has written. What else may be in the metadata of the Secret is nobody's restore.
func (s *state) checkOwn(ctx context.Context) error {
	now, err := s.readState(ctx, s.job)
	if err != nil {
		return err
	}
	if maps.EqualFunc(now.secret.Data, s.secret.Data, bytes.Equal) {
		s.secret = now.secret
		return nil
	}
	if jobs := jobsIn(now.secret); len(jobs) > 0 && jobs[len(jobs)-1] == s.job {
		return errRetried
	}
	return ErrOvertaken
}

// replicas are how many pods the workloads had before everything was stopped.
func (s *state) replicas() (map[string]int32, error) {
	known := map[string]int32{}
	text := s.secret.Data[keyReplicas]
	if len(text) == 0 {
		return known, nil
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return nil, fmt.Errorf("%s in Secret %s: %w", keyReplicas, SecretName, err)
	}
	return known, nil
}

// remember adds how many pods workloads have, but for those that have none: they are stopped
// already. What an earlier attempt offered is left until there is something else to fetch: a
// member that has lost its data to that attempt, or never had any, would start without, and the
// API server of an empty store has the pods of all sandboxes deleted. It waits, and is stopped.
func (s *state) remember(ctx context.Context, workloads []Workload) error {
	known, err := s.replicas()
	if err != nil {
		return err
	}
	for _, w := range workloads {
		n, err := s.cluster.replicas(ctx, w)
		if err != nil {
			return err
		}
		if n > 0 {
			known[w.String()] = n
		}
	}
	text, err := json.Marshal(known)
	if err != nil {
		return err
	}
	return s.write(ctx, remembering(s.secret.Data, text))
}

// remembering returns what is in the Secret when a restore begins.
func remembering(before map[string][]byte, replicas []byte) map[string][]byte {
	data := map[string][]byte{keyReplicas: replicas}
	for _, key := range []string{keyID, keyToken, keyCA, keySHA256, keyOfferedBy} {
		if value, ok := before[key]; ok {
			data[key] = value
		}
	}
	return data
}

// restored notes that this Job has restored the store, and that members have nothing to fetch
// any more.
func (s *state) restored(ctx context.Context) error {
	return s.write(ctx, map[string][]byte{keyReplicas: s.secret.Data[keyReplicas], keyRestored: []byte(s.job)})
}

// hasRestored reports whether this Job has restored the store.
func (s *state) hasRestored() bool { return s.is(s.secret.Data[keyRestored]) }

// hasStarted reports whether all that uses the store has been started after that.
func (s *state) hasStarted() bool {
	_, begun := s.secret.Data[keyReplicas]
	return s.hasRestored() && !begun
}

// offered is the id of what this Job has told members to fetch, or empty.
func (s *state) offered() string {
	if !s.is(s.secret.Data[keyOfferedBy]) {
		return ""
	}
	return string(s.secret.Data[keyID])
}

// is reports whether the id of a Job is that of this one.
func (s *state) is(job []byte) bool { return string(job) == s.job }

// offer tells members what to fetch.
func (s *state) offer(ctx context.Context, id string, srv *server, sha256 string) error {
	return s.write(ctx, map[string][]byte{
		keyReplicas: s.secret.Data[keyReplicas], keyOfferedBy: []byte(s.job),
		keyID: []byte(id), keyToken: []byte(srv.token), keyCA: srv.ca, keySHA256: []byte(sha256),
	})
}

// started notes that all that uses the store has been started. That this Job has restored it
// stays: an attempt whose last words were lost is followed by another one.
func (s *state) started(ctx context.Context) error {
	return s.write(ctx, map[string][]byte{keyRestored: []byte(s.job)})
}
