// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sandlot-io/sandlot/pkg/findings"
)

// renewedBy is for how much of the time of a certificate it must be valid still. It is
// replaced when a third is left, so something is wrong when only a quarter is.
const renewedBy = 4

func lookAtCertificates(ctx context.Context, c *cluster) ([]findings.Finding, string, error) {
	secrets, err := c.kube.CoreV1().Secrets(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	problems, n := judgeCertificates(secrets.Items, c.now)
	return problems, fmt.Sprintf("%d certificates are valid", n), nil
}

// judgeCertificates judges the certificates of an install, and returns how many there are.
func judgeCertificates(secrets []corev1.Secret, now time.Time) (found []findings.Finding, n int) {
	for _, secret := range secrets {
		chain := secret.Data[corev1.TLSCertKey]
		if !strings.HasPrefix(secret.Name, "sandlot-") || len(chain) == 0 {
			continue
		}
		n++
		level, why := judgeCertificate(chain, secret.Data[corev1.ServiceAccountRootCAKey], now)
		if why != "" {
			object := fmt.Sprintf("Secret %s/%s", secret.Namespace, secret.Name)
			found = append(found, problem(level, object, fmt.Sprintf("the certificate in %s %s", object, why),
				"see that sandlot-controller-manager runs with --manage-certificates, or renew it: docs/certificates.md"))
		}
	}
	return found, n
}

// judgeCertificate is what is wrong with a certificate and the CAs beside it, which may be
// none; empty if nothing is.
func judgeCertificate(chain, cas []byte, now time.Time) (level findings.Level, why string) {
	all, err := certutil.ParseCertsPEM(chain)
	if err != nil {
		return findings.Error, "cannot be read: " + err.Error()
	}
	leaf := all[0]
	end := leaf.NotAfter.UTC().Format(time.RFC3339)
	if !now.Before(leaf.NotAfter) {
		return findings.Error, "expired at " + end
	}
	if len(cas) > 0 {
		options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
		options.Roots.AppendCertsFromPEM(cas)
		for _, more := range all[1:] {
			options.Intermediates.AddCert(more)
		}
		if _, err := leaf.Verify(options); err != nil {
			return findings.Error, "is not of the CAs beside it: " + err.Error()
		}
	}
	if left := leaf.NotAfter.Sub(now); left < leaf.NotAfter.Sub(leaf.NotBefore)/renewedBy {
		return findings.Warning, "ends at " + end + " and should have been renewed before"
	}
	return "", ""
}
