// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// expiry is for an alert on certificates that are not replaced.
var expiry = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sandlot_certificate_expiration_timestamp_seconds",
	Help: "When the certificate in a Secret expires, in seconds since 1970. Only the instance that looks after them has it.",
}, []string{"secret"})

func init() { metrics.Registry.MustRegister(expiry) }

func observe(secret string, cert *x509.Certificate) {
	expiry.WithLabelValues(secret).Set(float64(cert.NotAfter.Unix()))
}

// signerEvent is the reason and the note of an event about a CA.
type signerEvent struct{ reason, note string }

var (
	signerCreated  = signerEvent{"CACreated", "Made a CA, which signs from now on"}
	signerPrepared = signerEvent{"NextCACreated", "Made the next CA. It signs when it has been published for long enough"}
	signerInUse    = signerEvent{"CAInUse", "The next CA signs from now on. The one before it stays trusted until it expires"}
)

const (
	reasonIssued        = "CertificateIssued"
	reasonRestartNeeded = "RestartNeeded"
	action              = "Rotate"
)

func (r *reconciler) noteSigner(ctx context.Context, secret *corev1.Secret, e signerEvent) {
	log.FromContext(ctx).Info(e.note, "secret", secret.Name)
	r.recorder.Eventf(secret, nil, corev1.EventTypeNormal, e.reason, action, "%s", e.note)
}

func (r *reconciler) noteIssued(ctx context.Context, t loadedTarget, pair *keyPair, why string) {
	end := pair.cert.NotAfter.UTC().Format(time.RFC3339)
	log.FromContext(ctx).Info("Issued certificate", "secret", t.secret.Name, "why", why, "notAfter", end)
	r.recorder.Eventf(t.secret, nil, corev1.EventTypeNormal, reasonIssued, action,
		"Issued certificate (%s), valid until %s", why, end)
}

// askForRestart warns once a day.
func (r *reconciler) askForRestart(ctx context.Context, a authority, secret *corev1.Secret, now time.Time) {
	if now.Before(r.warned[a.name].Add(day)) {
		return
	}
	r.warned[a.name] = now
	const note = "The next CA cannot be used before all Pods that mount a certificate of this CA have been restarted, for they read the CAs to trust when they start"
	log.FromContext(ctx).Info(note, "secret", secret.Name)
	r.recorder.Eventf(secret, nil, corev1.EventTypeWarning, reasonRestartNeeded, action, "%s", note)
}
