// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/tls"
	"io"
	"net/url"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

func TestJudge(t *testing.T) {
	call := func(err error) error { return &url.Error{Op: "Post", URL: "https://server", Err: err} }
	shortage := apierrors.NewTooManyRequests("none", 1)
	shortage.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1alpha1.CauseShortage}}
	for name, tc := range map[string]struct {
		err  error
		want verdict
	}{
		"reset":       {call(syscall.ECONNRESET), unclear},
		"refused":     {call(syscall.ECONNREFUSED), unclear},
		"end of file": {call(io.ErrUnexpectedEOF), unclear},
		"timeout":     {apierrors.NewTimeoutError("slow", 1), unclear},
		"unavailable": {apierrors.NewServiceUnavailable("busy"), unclear},
		"overload":    {apierrors.NewTooManyRequests("busy", 1), notDone},
		"shortage":    {shortage, short},
		"bad":         {apierrors.NewBadRequest("bad"), final},
		"untrusted":   {call(&tls.CertificateVerificationError{Err: io.EOF}), final},
	} {
		if got := judge(tc.err); got != tc.want {
			t.Errorf("%s is judged %d, want %d", name, got, tc.want)
		}
	}
}
