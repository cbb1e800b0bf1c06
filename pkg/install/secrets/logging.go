// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"context"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// bodyLevel is the verbosity from which on client-go logs what it sends and
// receives. Here those are keys.
const bodyLevel = 8

// WithoutBodies returns a context whose logger, which client-go uses too, never
// logs at that level, whatever -v says.
func WithoutBodies(ctx context.Context) context.Context {
	logger := log.FromContext(ctx)
	if logger.GetSink() == nil {
		return ctx
	}
	return log.IntoContext(ctx, logger.WithSink(boundedSink{logger.GetSink()}))
}

type boundedSink struct{ logr.LogSink }

var _ logr.CallDepthLogSink = boundedSink{}

func (s boundedSink) Enabled(level int) bool {
	return level < bodyLevel && s.LogSink.Enabled(level)
}

func (s boundedSink) WithValues(keysAndValues ...any) logr.LogSink {
	return boundedSink{s.LogSink.WithValues(keysAndValues...)}
}

func (s boundedSink) WithName(name string) logr.LogSink {
	return boundedSink{s.LogSink.WithName(name)}
}

func (s boundedSink) WithCallDepth(depth int) logr.LogSink {
	if sink, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return boundedSink{sink.WithCallDepth(depth)}
	}
	return s
}
