// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/yaml"
)

// answer says why a vulnerability is none here.
type answer struct {
	// ID is that of the Go vulnerability database, such as GO-2026-6094.
	ID string `json:"id"`
	// Module is the one that has it, and Version the one that the answer is for.
	Module  string `json:"module"`
	Version string `json:"version"`
	// Why says why it does no harm here.
	Why string `json:"why"`
	// Until is the day, such as 2027-02-01, on which the answer has to be given again.
	Until string `json:"until"`
}

func readAnswers(file string) ([]answer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the answers: %w", err)
	}
	var answers []answer
	if err := yaml.UnmarshalStrict(text, &answers); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, a := range answers {
		if _, err := time.Parse(time.DateOnly, a.Until); err != nil || a.ID == "" || a.Module == "" || a.Version == "" || a.Why == "" {
			return nil, fmt.Errorf("%s: %+v must have id, module, version, why, and until in the form 2027-02-01", file, a)
		}
	}
	return answers, nil
}

// judge returns an error for each finding that has to be fixed or answered, and for each answer
// that is overdue or answers nothing. What is only required, and in no program, is neither.
func judge(found []finding, answers []answer, now time.Time) error {
	var problems []error
	used := map[answer]bool{}
	for _, f := range found {
		if f.level == required {
			continue
		}
		answered := false
		for _, a := range answers {
			if a.ID == f.id && a.Module == f.module && a.Version == f.version {
				answered, used[a] = true, true
			}
		}
		if !answered {
			problems = append(problems, fmt.Errorf("%s is neither fixed nor answered", f))
		}
	}
	for _, a := range answers {
		switch {
		case !used[a]:
			problems = append(problems, fmt.Errorf("%s in %s@%s is answered, and is not found: take the answer out", a.ID, a.Module, a.Version))
		case now.Format(time.DateOnly) >= a.Until:
			problems = append(problems, fmt.Errorf("%s in %s@%s was answered until %s: look at it again", a.ID, a.Module, a.Version, a.Until))
		}
	}
	return errors.Join(problems...)
}
