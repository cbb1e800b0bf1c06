// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strconv"
)

// ticks is about how many parts a scale has.
const ticks = 4

// scale returns the steps of an axis from 0 that reaches up to highest, and its end:
// a whole number of steps, never 0. Steps are 1, 2 or 5 times a power of ten, and of
// bytes a power of two.
func scale(highest float64, unit string) (step, top float64) {
	if !(highest > 0) || math.IsInf(highest, 0) {
		return 1, 1
	}
	if unit == "bytes" {
		step = math.Exp2(math.Ceil(math.Log2(highest / ticks)))
	} else {
		power := math.Pow(10, math.Floor(math.Log10(highest/ticks)))
		for _, factor := range []float64{1, 2, 5, 10} {
			if step = factor * power; highest <= step*ticks*1.001 {
				break
			}
		}
	}
	return step, step * math.Ceil(highest/step*0.999)
}

// sizes are the letters of amounts, from the largest; those of bytes are of powers of
// two, the others of ten.
var sizes = map[string][]struct {
	of     float64
	suffix string
}{
	"bytes":       {{1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}, {1, " B"}},
	"s":           {{86400, " d"}, {3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}},
	"percentunit": {{0.01, "%"}},
	"ops":         {{1e3, " K ops/s"}, {1, " ops/s"}},
	"reqps":       {{1e3, " K req/s"}, {1, " req/s"}},
	"short":       {{1e6, " M"}, {1e3, " K"}, {1, ""}},
}

// amount writes a value with its unit, of Grafana's names.
func amount(value float64, unit string) string {
	of, known := sizes[unit]
	if !known {
		of = sizes["short"]
	}
	if value == 0 {
		return "0"
	}
	size := of[len(of)-1]
	for _, s := range of {
		if math.Abs(value) >= s.of*0.999 {
			size = s
			break
		}
	}
	if size.of == 1 && math.Abs(value) < 1 { // such as 0.05 ops/s
		return strconv.FormatFloat(value, 'g', 2, 64) + size.suffix
	}
	return strconv.FormatFloat(math.Round(value/size.of*100)/100, 'f', -1, 64) + size.suffix
}
