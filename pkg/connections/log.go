// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"bytes"
	"log"

	"k8s.io/klog/v2"
)

// ErrorLog returns an error log for a server of net/http. It logs errors of single connections with verbosity 4 only,
// because any client can cause them, and panics always.
func ErrorLog(logger klog.Logger) *log.Logger { return log.New(errorLog{logger}, "", 0) }

type errorLog struct{ klog.Logger }

// Write implements io.Writer.
func (l errorLog) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("http: panic")) || bytes.HasPrefix(line, []byte("http2: panic")) {
		l.Error(nil, "Recovered from a panic of a request", "message", string(line))
		return len(line), nil
	}
	l.V(4).Info("Connection", "message", string(line))
	return len(line), nil
}
