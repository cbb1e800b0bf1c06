// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sandlot-io/sandlot/pkg/install/secrets"
)

// reconciler keeps the keys of the store.
type reconciler struct {
	store    *secrets.Store
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	warned   time.Time // when the lost keys were last asked for
}

var _ reconcile.Reconciler = (*reconciler)(nil)

// Reconcile takes the step that is due. Each write is refused if another client wrote
// meanwhile, so a leader that does not yet know that it is none any more does no harm.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	rest, err := r.reconcile(secrets.WithoutBodies(ctx))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).V(2).Info("Write conflict, retrying", "reason", err.Error())
		return reconcile.Result{RequeueAfter: secrets.RetryConflict}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("keys of the store: %w", err)
	}
	return reconcile.Result{RequeueAfter: rest}, nil
}

// found is what there is.
type found struct {
	secret, copied *corev1.Secret
	names          *corev1.ConfigMap
	// mounted means that all API servers that run mount the Secret.
	mounted bool
}

func (r *reconciler) find(ctx context.Context) (*found, error) {
	var f found
	var err error
	if f.secret, err = r.store.Secret(ctx, Secret, corev1.SecretTypeOpaque); err != nil {
		return nil, err
	}
	if f.copied, err = r.store.Secret(ctx, CopySecret, corev1.SecretTypeOpaque); err != nil {
		return nil, err
	}
	if f.names, err = r.store.ConfigMap(ctx, ConfigMap); err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	if err := r.store.Reader.List(ctx, pods, client.InNamespace(r.store.Namespace), client.MatchingLabels{apiServerLabel: apiServerName}); err != nil {
		return nil, fmt.Errorf("listing the Pods of %s: %w", apiServerName, err)
	}
	f.mounted = true
	for i := range pods.Items {
		pod := &pods.Items[i]
		f.mounted = f.mounted && (secrets.Ended(pod) || secrets.Mounts(pod,
			func(secret string) bool { return secret == Secret },
			func(string) bool { return false }))
	}
	return &f, nil
}

// load reads the configuration in a Secret. ok is false where there is none, or where
// something has spoilt it.
func load(secret *corev1.Secret) (c config, ok bool, err error) {
	data, there := secret.Data[KeyConfig]
	if !there {
		return config{}, false, nil
	}
	c, err = decode(data)
	if err != nil && !errors.Is(err, errUnreadable) {
		return config{}, false, fmt.Errorf("%s of Secret %s: %w", KeyConfig, secret.Name, err)
	}
	return c, err == nil, nil
}

// errSpoilt means that it cannot be known which keys there were.
var errSpoilt = errors.New("the keys in Secret " + Secret + " cannot be read, and there is no copy: restore it from a backup, or delete it if nothing is encrypted with its keys")

// state returns what the two Secrets say together. The order of the keys is that of the
// one that API servers mount.
func (f *found) state() (state, error) {
	published, ok, err := load(f.secret)
	if err != nil {
		return state{}, err
	}
	copied, copiedOK, err := load(f.copied)
	if err != nil {
		return state{}, err
	}
	var s state
	_, s.requested = f.secret.Annotations[AnnotationRotate]
	s.absent = f.secret.ResourceVersion == ""
	s.restored = f.restored(published)
	switch {
	case !ok && !copiedOK && len(f.secret.Data) > 0:
		return state{}, errSpoilt
	case !ok:
		s.config = copied
		s.plain = s.plain || !copiedOK
		return s, nil
	}
	if s.config, err = published.merge(copied); err != nil {
		return state{}, err
	}
	if waits := s.pending(); waits >= 0 && waits < len(published.keys) {
		s.published = secrets.ParseTime(f.secret.Annotations[annotationPublished])
	}
	return s, nil
}

// restored returns the names of the keys that came from a backup: one that is made here is noted
// before it is in the Secret.
func (f *found) restored(published config) []string {
	if f.names.ResourceVersion == "" {
		return nil // it is not known any more
	}
	found := without(published.names(), noted(f.names.Data[keyNames]))
	return noted(note(f.names.Data[keyRestored], found))
}

// reconcile returns how long it may rest.
func (r *reconciler) reconcile(ctx context.Context) (time.Duration, error) {
	f, err := r.find(ctx)
	if err != nil {
		return 0, err
	}
	s, err := f.state()
	if err != nil {
		return 0, err
	}
	now := r.clock.Now()
	rules := rules{atRest: r.options.AtRest, rotation: r.options.Rotation, overlap: r.options.Overlap, mounted: f.mounted}
	lost := s.missing(noted(f.names.Data[keyNames]))
	done := stepNone
	if len(lost) == 0 {
		s, done = s.next(now, rules)
	}
	observe(s, lost)
	if len(lost) > 0 {
		r.askForBackup(ctx, f.names, lost, now)
		if len(s.keys) == 0 {
			return secrets.LongestRest, nil // a Secret that is restored wakes us
		}
	}
	if err := r.save(ctx, f, s); err != nil {
		return 0, err
	}
	if done != stepNone {
		r.report(ctx, f.secret, s, done)
	}
	rest := secrets.Rest(now, s.times(rules)...)
	if rules.atRest && s.pending() >= 0 {
		rest = min(rest, waitForPods)
	}
	return rest, nil
}

// waitForPods is how often Pods are looked at while a key waits for them. Those that end
// and stay, as evicted ones do, wake nothing.
const waitForPods = time.Minute

// save writes what must be safe before API servers see it first.
func (r *reconciler) save(ctx context.Context, f *found, s state) error {
	encoded, err := s.encode()
	if err != nil {
		return err
	}
	data := map[string][]byte{KeyConfig: encoded}
	if err := r.store.SaveSecret(ctx, f.copied, data, nil); err != nil {
		return err
	}
	names := map[string]string{keyNames: note(f.names.Data[keyNames], s.names())}
	if len(s.restored) > 0 {
		names[keyRestored] = strings.Join(s.restored, "\n")
	}
	if err := r.store.SaveConfigMap(ctx, f.names, names); err != nil {
		return err
	}
	if !s.requested {
		delete(f.secret.Annotations, AnnotationRotate)
	}
	return r.store.SaveSecret(ctx, f.secret, data, map[string]string{annotationPublished: secrets.FormatTime(s.published)})
}

// askForBackup warns once a day.
func (r *reconciler) askForBackup(ctx context.Context, names *corev1.ConfigMap, lost []string, now time.Time) {
	if now.Before(r.warned.Add(day)) {
		return
	}
	r.warned = now
	const text = "Keys of the store are in no Secret any more, and none is made in their place. " +
		"Restore Secret " + Secret + " from a backup. If nothing is encrypted with them, remove their names here"
	log.FromContext(ctx).Info(text, "configMap", names.Name, "keys", lost)
	r.recorder.Eventf(names, nil, corev1.EventTypeWarning, "EncryptionKeysLost", action, "%s: %s", text, strings.Join(lost, ", "))
}
