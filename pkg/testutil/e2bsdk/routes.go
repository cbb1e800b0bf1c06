// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package e2bsdk

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	// called is a request in the text of an SDK. Those of envdApi go to a sandbox.
	called = regexp.MustCompile(`(envdApi\.)?\bapi\.(GET|POST|PUT|PATCH|DELETE)\("(/[^"]+)"`)
	// typedPath and typedMethod are lines of the declaration of the API's client, by which a
	// program can call what no method of the SDK calls.
	typedPath   = regexp.MustCompile(`^  "(/[^"]+)": \{$`)
	typedMethod = regexp.MustCompile(`^    (get|post|put|patch|delete): \{$`)
)

// Routes returns the requests to the API that each installed SDK can make, "GET /path/{id}",
// by the name of the SDK in package.json.
func (s SDKs) Routes() (map[string][]string, error) {
	dirs, err := filepath.Glob(filepath.Join(string(s), "node_modules", "e2b*"))
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, dir := range dirs {
		program, err := os.ReadFile(filepath.Join(dir, "dist", "index.js"))
		if err != nil {
			return nil, err
		}
		types, err := os.ReadFile(filepath.Join(dir, "dist", "index.d.ts"))
		if err != nil {
			return nil, err
		}
		routes := calledRoutes(string(program))
		if len(routes) == 0 {
			return nil, fmt.Errorf("%s: no request of the SDK is recognized", dir)
		}
		routes = append(routes, typedRoutes(string(types))...)
		slices.Sort(routes)
		all[filepath.Base(dir)] = slices.Compact(routes)
	}
	return all, nil
}

func calledRoutes(program string) (routes []string) {
	for _, call := range called.FindAllStringSubmatch(program, -1) {
		if call[1] == "" {
			routes = append(routes, call[2]+" "+call[3])
		}
	}
	return routes
}

// typedRoutes reads the first declaration of paths. The next one is of envd.
func typedRoutes(types string) (routes []string) {
	_, types, _ = strings.Cut(types, "interface paths {\n")
	types, _, _ = strings.Cut(types, "\n}")
	path := ""
	for line := range strings.SplitSeq(types, "\n") {
		if m := typedPath.FindStringSubmatch(line); m != nil {
			path = m[1]
		} else if m := typedMethod.FindStringSubmatch(line); m != nil {
			routes = append(routes, strings.ToUpper(m[1])+" "+path)
		}
	}
	return routes
}
