// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Kubectl runs kubectl as the user of a kubeconfig file, or as the admin if it
// is empty. The error of a kubectl that failed says what it wrote to stderr.
func (c *ControlPlane) Kubectl(ctx context.Context, kubeconfig string, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	path, err := c.programs.path("kubectl")
	if err != nil {
		return "", "", err
	}
	if kubeconfig == "" {
		kubeconfig = c.Kubeconfig()
	}
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+c.home())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
		return out.String(), errOut.String(), err
	}
	return out.String(), errOut.String(), nil
}
