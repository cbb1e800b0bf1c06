// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

// Promcheck checks the queries of Grafana dashboards and of Prometheus alerts
// against what servers really expose: it takes scrapes of them for the contents
// of a Prometheus and evaluates every query with Prometheus' own engine.
//
//	promcheck --dashboard dashboard.json --rules alerts.yaml SCRAPES
//
// SCRAPES is a folder with one folder for each round of scrapes, in the order of
// their names, and in it a file for each job, JOB.prom. It says on stderr what is
// wrong and then exits with 1.
//
// It is a module of its own, so that nothing else depends on Prometheus.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

func main() {
	dashboard := flag.String("dashboard", "", "JSON of a Grafana dashboard")
	rules := flag.String("rules", "", "YAML of Prometheus rules")
	ignore := flag.String("ignore", "^$", "regular expression of queries not to check, because the scrapes are not of all programs")
	flag.Parse()
	if err := run(*dashboard, *rules, *ignore, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dashboard, rules, ignore, folder string) error {
	ignored, err := regexp.Compile(ignore)
	if err != nil {
		return err
	}
	c, err := load(folder, time.Now())
	if err != nil {
		return err
	}
	defer c.close()
	ofDashboard, err := dashboardQueries(dashboard)
	if err != nil {
		return err
	}
	ofRules, err := ruleQueries(rules)
	if err != nil {
		return err
	}
	queries := slices.DeleteFunc(append(ofDashboard, ofRules...), func(q query) bool { return ignored.MatchString(q.expr) })
	var problems []error
	for _, q := range queries {
		for _, err := range c.check(q) {
			problems = append(problems, fmt.Errorf("%s: %w\n\t%s", q.where, err, q.expr))
		}
	}
	if len(problems) == 0 {
		fmt.Printf("%d queries are right\n", len(queries))
	}
	return errors.Join(problems...)
}
