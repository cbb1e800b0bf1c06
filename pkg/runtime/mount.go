// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// mountsPath is where a runtime that speaks TLS mounts volumes.
const mountsPath = "v1/storage/mounts"

// Volume is a volume to mount into a sandbox.
type Volume struct {
	// Name is that of the PersistentVolume, for errors.
	Name string
	// Driver is its CSI driver.
	Driver string
	// Request is what the driver is asked for. Its TargetPath is the path in the sandbox.
	Request *csi.NodePublishVolumeRequest
	// PodUID is that of the sandbox's pod, which the driver may want to know.
	PodUID string
	// Before is called right before the call, when nothing else is waited for; its error ends the
	// mount. It may be nil.
	Before func(ctx context.Context) error
}

// Mount mounts a volume into the sandbox of a runtime that was initialized with an access
// token, within 30 s. It is tried once: it may have had an effect when it fails. The error
// names the volume, its path and what is missing; it is an *Error, or that of ctx.
func (c *Client) Mount(ctx context.Context, t Target, token string, v Volume) error {
	if err := c.mount(ctx, t, token, v); err != nil {
		return fmt.Errorf("mounting PersistentVolume %s at %s: %w", v.Name, v.Request.GetTargetPath(), err)
	}
	return nil
}

func (c *Client) mount(ctx context.Context, t Target, token string, v Volume) error {
	base, err := t.base()
	if err != nil {
		return err
	}
	raw, err := proto.Marshal(v.Request)
	if err != nil {
		return &Error{kind: unable, message: "the request to the driver cannot be encoded"}
	}
	release, err := c.mounts.Wait(ctx, t.Namespace)
	if err != nil {
		return err
	}
	defer release()
	if v.Before != nil {
		if err := v.Before(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	config := base64.StdEncoding.EncodeToString(raw)
	if t.TLSPort != "" {
		return asError(c.mountByEndpoint(ctx, base.JoinPath(mountsPath).String(), token, v, config))
	}
	return asError(c.mountByProcess(ctx, base.JoinPath(startPath).String(), token, v, config))
}

// asError keeps a nil *Error from becoming an error that is not nil.
func asError(err *Error) error {
	if err == nil {
		return nil
	}
	return err
}

// mountByEndpoint asks a runtime that mounts volumes itself.
func (c *Client) mountByEndpoint(ctx context.Context, address, token string, v Volume, config string) *Error {
	body, err := json.Marshal(map[string]string{"driver": v.Driver, "config": config})
	if err != nil {
		return &Error{kind: unable, message: "the request to the driver cannot be encoded"}
	}
	answer, failed := c.post(ctx, address, "application/json", token, body, nil)
	switch {
	case failed == nil:
		_ = answer.Body.Close() // success is in the status
		return nil
	case failed.status == http.StatusNotFound:
		return &Error{rejected, failed.status, failed.message + " to POST /" + mountsPath + ": this agent-runtime cannot mount volumes; use one that can"}
	}
	return failed
}

// post sends a body to a runtime.
func (c *Client) post(ctx context.Context, address, contentType, token string, body []byte, header http.Header) (*http.Response, *Error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, refused("the URL of the agent-runtime is not a URL")
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Content-Type", contentType)
	if token != "" {
		req.Header.Set(accessTokenHeader, token)
	}
	return c.do(req)
}
