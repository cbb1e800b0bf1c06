// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scrapes holds scrapes of programs in memory, as a Prometheus would.
package scrapes

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// interval is the time between two rounds of scrapes, as far as queries are
// concerned.
const interval = 15 * time.Second

// Database holds scrapes as a Prometheus would. The zero value is empty.
type Database struct {
	series map[string]*Series // by their labels
}

// Series is one of a Database.
type Series struct {
	Labels  labels.Labels
	samples []chunks.Sample
}

// Load reads the rounds of scrapes below a folder. The last one is of now.
func Load(folder string, now time.Time) (*Database, error) {
	rounds, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(rounds)
	if len(rounds) < 2 {
		return nil, fmt.Errorf("%q has %d rounds of scrapes; a rate needs two", folder, len(rounds))
	}
	db := &Database{}
	for i, round := range rounds {
		files, err := filepath.Glob(filepath.Join(round, "*.prom"))
		if err != nil {
			return nil, err
		}
		at := now.Add(-interval * time.Duration(len(rounds)-1-i))
		for _, file := range files {
			if err := db.read(file, at); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return db, nil
}

func (db *Database) read(path string, at time.Time) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return db.Add(file, strings.TrimSuffix(filepath.Base(path), ".prom"), at)
}

// Add reads what a job answered to a scrape. Scrapes of a job are added in the order
// of their times.
func (db *Database) Add(scrape io.Reader, job string, at time.Time) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(scrape)
	if err != nil {
		return err
	}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			b := labels.NewBuilder(labels.FromStrings("job", job, "instance", job+":443"))
			for _, pair := range metric.GetLabel() {
				b.Set(pair.GetName(), pair.GetValue())
			}
			db.add(b, at, name, family.GetType(), metric)
		}
	}
	db.put(labels.NewBuilder(labels.FromStrings("job", job, "instance", job+":443")), at, "up", 1)
	return nil
}

func (db *Database) add(b *labels.Builder, at time.Time, name string, kind dto.MetricType, metric *dto.Metric) {
	switch kind {
	case dto.MetricType_COUNTER:
		db.put(b, at, name, metric.GetCounter().GetValue())
	case dto.MetricType_GAUGE:
		db.put(b, at, name, metric.GetGauge().GetValue())
	case dto.MetricType_UNTYPED:
		db.put(b, at, name, metric.GetUntyped().GetValue())
	case dto.MetricType_SUMMARY:
		db.put(b, at, name+"_sum", metric.GetSummary().GetSampleSum())
		db.put(b, at, name+"_count", float64(metric.GetSummary().GetSampleCount()))
		for _, quantile := range metric.GetSummary().GetQuantile() {
			db.put(b, at, name, quantile.GetValue(), "quantile", number(quantile.GetQuantile()))
		}
	case dto.MetricType_HISTOGRAM:
		db.put(b, at, name+"_sum", metric.GetHistogram().GetSampleSum())
		db.put(b, at, name+"_count", float64(metric.GetHistogram().GetSampleCount()))
		for _, bucket := range metric.GetHistogram().GetBucket() {
			db.put(b, at, name+"_bucket", float64(bucket.GetCumulativeCount()), "le", number(bucket.GetUpperBound()))
		}
	}
}

func number(f float64) string {
	if math.IsInf(f, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// put adds a sample, to a series of b's labels and more.
func (db *Database) put(b *labels.Builder, at time.Time, name string, value float64, more ...string) {
	of := labels.NewBuilder(b.Labels()).Set(model.MetricNameLabel, name)
	for i := 0; i < len(more); i += 2 {
		of.Set(more[i], more[i+1])
	}
	set := of.Labels()
	s := db.series[set.String()]
	if s == nil {
		if db.series == nil {
			db.series = map[string]*Series{}
		}
		s = &Series{Labels: set}
		db.series[set.String()] = s
	}
	s.samples = append(s.samples, sample{at.UnixMilli(), value})
}

// Matching returns the series that all matchers fit, sorted.
func (db *Database) Matching(matchers []*labels.Matcher) []*Series {
	var found []*Series
	for _, s := range db.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels.Get(m.Name)) }) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *Series) int { return labels.Compare(a.Labels, b.Labels) })
	return found
}

// Querier implements storage.Queryable.
func (db *Database) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{db: db, mint: mint, maxt: maxt}, nil
}

type querier struct {
	storage.LabelQuerier // which the engine does not use

	db         *Database
	mint, maxt int64
}

// Select implements storage.Querier.
func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var set seriesSet
	for _, s := range q.db.Matching(matchers) {
		samples := slices.DeleteFunc(slices.Clone(s.samples), func(s chunks.Sample) bool { return s.T() < q.mint || s.T() > q.maxt })
		if len(samples) > 0 {
			set.entries = append(set.entries, storage.NewListSeries(s.Labels, samples))
		}
	}
	return &set
}

// Close implements storage.Querier.
func (q *querier) Close() error { return nil }

type seriesSet struct {
	entries []storage.Series
	next    int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next <= len(s.entries) }
func (s *seriesSet) At() storage.Series                { return s.entries[s.next-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

type sample struct {
	t int64
	f float64
}

var _ chunks.Sample = sample{}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
