// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package encryptionkeys

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	keyCreated = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sandlot_encryption_key_created_timestamp_seconds",
		Help: "When the key that the store is encrypted with was made, in seconds since 1970; 0 while it is not encrypted. " +
			"Only the instance that looks after the keys has it.",
	})
	keysLost = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sandlot_encryption_keys_lost",
		Help: "How many keys of the store are in no Secret any more.",
	})
)

func init() { metrics.Registry.MustRegister(keyCreated, keysLost) }

func observe(s state, lost []string) {
	keysLost.Set(float64(len(lost)))
	if s.plain || len(s.keys) == 0 {
		keyCreated.Set(0)
		return
	}
	keyCreated.Set(float64(s.keys[0].made().Unix()))
}

// action is what events are about.
const action = "Rotate"

func (r *reconciler) report(ctx context.Context, secret *corev1.Secret, s state, done step) {
	log.FromContext(ctx).Info(done.note, "secret", secret.Name, "keys", s.names())
	r.recorder.Eventf(secret, nil, corev1.EventTypeNormal, done.reason, action, "%s", done.note)
}
