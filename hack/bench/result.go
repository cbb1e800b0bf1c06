// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// number is printed with four digits or all before the point: more are noise.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	value := float64(n)
	if value == 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return []byte("0"), nil
	}
	scale := math.Pow(10, max(0, 3-math.Floor(math.Log10(math.Abs(value)))))
	return json.Marshal(math.Round(value*scale) / scale)
}

// result is a line of the report.
type result struct {
	Case    string `json:"case"`
	Clients int    `json:"clients"`
	// Figures are numbers, or numbers by name.
	Figures map[string]any `json:",embed"`
	// Goal is what is to be reached, and OK whether it is, without any failed claim.
	Goal string `json:"goal,omitempty"`
	OK   *bool  `json:"ok,omitzero"`
}

func (r *result) put(name string, value any) {
	if r.Figures == nil {
		r.Figures = map[string]any{}
	}
	if _, taken := r.Figures[name]; taken {
		check(fmt.Errorf("figure %s is given twice", name))
	}
	r.Figures[name] = value
}

func (r *result) set(name string, value float64) { r.put(name, number(value)) }

// setAll tells counts under one name.
func (r *result) setAll(name string, all counts) {
	numbers := map[string]number{}
	for what, n := range all {
		numbers[what] = number(n)
	}
	r.put(name, numbers)
}

// speed reports what an arm did.
func (r *result) speed(name string, s series) {
	r.set(name+"_per_s", s.rate())
	r.set(name+"_p50_ms", s.p50())
	r.set(name+"_p99_ms", s.p99())
}

// value is a figure, or no number where there is none.
func (r *result) value(name string) float64 {
	if value, ok := r.Figures[name].(number); ok {
		return float64(value)
	}
	return math.NaN()
}

// judge says in the line what the goals are, such as "a <= 1, b >= 2", and if they are
// reached. What is no number reaches none.
func (r *result) judge(goals string) error {
	goals = strings.Trim(goals+", "+r.Goal, ", ")
	if goals == "" {
		return nil
	}
	ok := !(r.value("failed") > 0)
	for goal := range strings.SplitSeq(goals, ", ") {
		name, limit, least := strings.Cut(goal, " >= ")
		if !least {
			name, limit, _ = strings.Cut(goal, " <= ")
		}
		bound, err := strconv.ParseFloat(limit, 64)
		if err != nil {
			return fmt.Errorf("goal %q: %w", goal, err)
		}
		value := r.value(name)
		ok = ok && (least && value >= bound || !least && value <= bound)
	}
	r.Goal, r.OK = goals, &ok
	return nil
}

// print writes the line.
func (r *result) print(out io.Writer) error {
	line, err := json.Marshal(r, json.Deterministic(true))
	if err == nil {
		_, err = out.Write(append(line, '\n'))
	}
	return err
}
