// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// interval is the time between two rounds of scrapes, as far as queries are
// concerned.
const interval = 15 * time.Second

// checker evaluates queries at the time of the last scrape.
type checker struct {
	db     *tsdb.DB
	dir    string
	engine *promql.Engine
	now    time.Time
}

func promqlParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// load reads the rounds of scrapes below a folder. The last one is of now.
func load(folder string, now time.Time) (*checker, error) {
	rounds, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(rounds)
	if len(rounds) < 2 {
		return nil, fmt.Errorf("%q has %d rounds of scrapes; a rate needs two", folder, len(rounds))
	}
	c := &checker{now: now, engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute, Parser: promqlParser()})}
	if c.dir, err = os.MkdirTemp("", "promcheck-"); err != nil {
		return nil, err
	}
	if c.db, err = tsdb.Open(c.dir, nil, nil, tsdb.DefaultOptions(), nil); err != nil {
		return nil, err
	}
	for i, round := range rounds {
		files, err := filepath.Glob(filepath.Join(round, "*.prom"))
		for _, file := range files {
			err = errors.Join(err, c.read(file, now.Add(-interval*time.Duration(len(rounds)-1-i))))
		}
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *checker) close() error { return errors.Join(c.db.Close(), os.RemoveAll(c.dir)) }

// read adds what a job answered to a scrape.
func (c *checker) read(path string, at time.Time) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	one := 1.0
	all := []*dto.MetricFamily{{Name: new("up"), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &one}}}}}
	for _, family := range families {
		all = append(all, family)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(at.UnixNano())}, all...)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	job := strings.TrimSuffix(filepath.Base(path), ".prom")
	app := c.db.Appender(context.Background())
	for _, sample := range samples {
		b := labels.NewBuilder(labels.FromStrings("job", job, "instance", job+":443"))
		for name, value := range sample.Metric {
			b.Set(string(name), string(value))
		}
		_, appendErr := app.Append(0, b.Labels(), int64(sample.Timestamp), float64(sample.Value))
		err = errors.Join(err, appendErr)
	}
	return errors.Join(err, app.Commit())
}

// matching returns the series that all matchers fit.
func (c *checker) matching(matchers []*labels.Matcher) (found []labels.Labels) {
	querier, err := c.db.Querier(0, c.now.UnixMilli())
	if err != nil {
		return nil
	}
	defer querier.Close()
	for set := querier.Select(context.Background(), false, nil, matchers...); set.Next(); {
		found = append(found, set.At().Labels())
	}
	return found
}
