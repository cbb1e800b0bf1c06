// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"strconv"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // metrics of requests to the cluster
	"k8s.io/utils/clock"

	"github.com/sandlot-io/sandlot/pkg/gateway/e2b"
)

// The two kinds of requests.
const (
	labelAPI     = "api"
	labelSandbox = "sandbox"
)

var (
	requestSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace:      "sandlot",
		Subsystem:      "gateway",
		Name:           "request_duration_seconds",
		Help:           "How long requests took, by what they were for (api or sandbox) and the code of the answer.",
		Buckets:        []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		StabilityLevel: metrics.ALPHA,
	}, []string{"to", "code"})

	requestsInFlight = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace:      "sandlot",
		Subsystem:      "gateway",
		Name:           "requests_in_flight",
		Help:           "How many requests are being answered, by what they are for (api or sandbox).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"to"})

	connectionsOpen = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace:      "sandlot",
		Subsystem:      "gateway",
		Name:           "connections",
		Help:           "How many connections are open.",
		StabilityLevel: metrics.ALPHA,
	})

	connectionsRefused = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "sandlot",
		Subsystem:      "gateway",
		Name:           "connections_refused_total",
		Help:           "How many connections were closed at once, because there were too many and none could be closed for them.",
		StabilityLevel: metrics.ALPHA,
	})

	connectionsEvicted = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "sandlot",
		Subsystem:      "gateway",
		Name:           "connections_evicted_total",
		Help:           "How many connections were closed for new ones, because there were too many: those without a request, or of a network that had more than its share.",
		StabilityLevel: metrics.ALPHA,
	})

	largeHeadersRefused = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "sandlot",
		Subsystem:      "gateway",
		Name:           "large_headers_refused_total",
		Help:           "How many connections were closed because they had large headers and all slots for such were taken.",
		StabilityLevel: metrics.ALPHA,
	})

	unreadClosed = metrics.NewCounter(&metrics.CounterOpts{
		Namespace:      "sandlot",
		Subsystem:      "gateway",
		Name:           "unread_closed_total",
		Help:           "How many connections were closed because their clients did not read the responses, and there were too many such responses.",
		StabilityLevel: metrics.ALPHA,
	})

	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(requestSeconds, requestsInFlight, connectionsOpen, connectionsRefused, connectionsEvicted, largeHeadersRefused, unreadClosed, e2b.GiveBacksFailed)
	})
)

// instrument returns a handler that counts the requests of another one, under the label to.
func instrument(to string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requestsInFlight.WithLabelValues(to).Inc()
		began, recorder, returned := clock.RealClock{}.Now(), &statusRecorder{ResponseWriter: w}, false
		defer func() {
			if !returned && recorder.code == 0 {
				recorder.code = http.StatusInternalServerError // a panic before a response
			}
			if recorder.code == 0 && r.Context().Err() != nil {
				recorder.code = clientGone
			}
			requestsInFlight.WithLabelValues(to).Dec()
			requestSeconds.WithLabelValues(to, recorder.String()).Observe(clock.RealClock{}.Since(began).Seconds())
		}()
		handler.ServeHTTP(recorder, r)
		returned = true
	})
}

// clientGone is the code of a request whose client went away before the response. No response has it. Other
// proxies count such requests under the same code.
const clientGone = 499

// statusRecorder remembers the status code of a response.
type statusRecorder struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusRecorder) WriteHeader(code int) {
	if s.code == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController find what the writer can do.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// String returns the code, or "other" for a code of a sandbox that is not a known one.
func (s *statusRecorder) String() string {
	switch {
	case s.code == 0:
		return "200"
	case s.code == clientGone, s.code < 600 && http.StatusText(s.code) != "":
		return strconv.Itoa(s.code)
	}
	return "other"
}
