// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
)

// The database of the Go project is a module as well, whose version says of when it is. With
// one that is pinned, a commit that passed the check still passes it later.
const (
	databaseModule  = "golang.org/x/vulndb"
	databaseVersion = "v0.0.0-20261105234957-e22db6528018"
	databaseSum     = "h1:mfngRv0Yoh0VApsXKEN82CjD99kl7mtparN3bs3JnqI="
)

// databaseDate is the day of the pinned database.
func databaseDate() string {
	day := strings.Split(databaseVersion, "-")[1]
	return day[:4] + "-" + day[4:6] + "-" + day[6:8]
}

// pinnedDatabase has the go command download the pinned database, where that is not done yet,
// and returns its URL.
func pinnedDatabase(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", databaseModule+"@"+databaseVersion)
	out, err := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &module); err != nil || jsonErr != nil || module.Error != "" {
		return "", fmt.Errorf("downloading %s %s: %s: %w", databaseModule, databaseVersion, module.Error, errors.Join(err, jsonErr))
	}
	if module.Sum != databaseSum {
		return "", fmt.Errorf("%s %s has the checksum %s, not %s", databaseModule, databaseVersion, module.Sum, databaseSum)
	}
	return (&url.URL{Scheme: "file", Path: filepath.Join(module.Dir, "data", "osv")}).String(), nil
}
