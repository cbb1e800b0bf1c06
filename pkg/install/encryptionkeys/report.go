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

// Only the instance that looks after the keys has a series of these: a 0 of another one would
// say that the store is not encrypted.
var (
	keyCreated = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_encryption_key_created_timestamp_seconds",
		Help: "When the key that the store is encrypted with was made, in seconds since 1970; 0 while it is not encrypted. " +
			"Only the instance that looks after the keys has it.",
	}, nil)
	keysLost = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sandlot_encryption_keys_lost",
		Help: "How many keys of the store are in no Secret any more. Only the instance that looks after the keys has it.",
	}, nil)
)

func init() { metrics.Registry.MustRegister(keyCreated, keysLost) }

func observe(s state, lost []string) {
	keysLost.WithLabelValues().Set(float64(len(lost)))
	created := 0.0
	if !s.plain && len(s.keys) > 0 {
		created = float64(s.keys[0].made().Unix())
	}
	keyCreated.WithLabelValues().Set(created)
}

// action is what events are about.
const action = "Rotate"

func (r *reconciler) report(ctx context.Context, secret *corev1.Secret, s state, done step) {
	log.FromContext(ctx).Info(done.note, "secret", secret.Name, "keys", s.names())
	r.recorder.Eventf(secret, nil, corev1.EventTypeNormal, done.reason, action, "%s", done.note)
}
