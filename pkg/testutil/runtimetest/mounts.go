// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimetest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// StorageBinary is what mounts volumes in a runtime that has no endpoint for it.
const StorageBinary = "/mnt/envd/sandbox-runtime-storage"

// Mount is a volume that was mounted.
type Mount struct {
	// Driver is the CSI driver.
	Driver string
	// Request is what it was asked for.
	Request *csi.NodePublishVolumeRequest
	// PodUID is the variable POD_UID of the process that mounts; empty at the endpoint.
	PodUID string
}

// MountResult is how mounts end. The zero value is success.
type MountResult struct {
	// ExitCode and Stderr are those of the process that mounts.
	ExitCode int
	Stderr   string
	// NoBinary lets the process fail to start, as where the binary is missing.
	NoBinary bool
}

// SetMountResult says how mounts end from now on.
func (rt *Runtime) SetMountResult(result MountResult) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.mount = result
}

// Mounts are the volumes that were mounted, in that order.
func (rt *Runtime) Mounts() []Mount {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return slices.Clone(rt.mounts)
}

// mountByEndpoint is POST /v1/storage/mounts.
func (rt *Runtime) mountByEndpoint(call Call) answer {
	var asked struct{ Driver, Config string }
	if json.Unmarshal(call.Body, &asked) != nil || !rt.mounted(asked.Driver, asked.Config, "") {
		return answer{status: http.StatusBadRequest}
	}
	return answer{status: http.StatusNoContent}
}

// startProcess is process.Process/Start of a command that mounts. The answer is a stream
// of events, each in an envelope of flags, length and JSON; the flag 2 ends it.
func (rt *Runtime) startProcess(call Call) answer {
	var asked struct {
		Process struct {
			Cmd  string            `json:"cmd"`
			Args []string          `json:"args"`
			Envs map[string]string `json:"envs"`
		} `json:"process"`
	}
	user := call.Header.Get("Authorization") == "Basic "+base64.StdEncoding.EncodeToString([]byte("root:"))
	if !user || call.Header.Get("Content-Type") != "application/connect+json" || len(call.Body) < 5 ||
		json.Unmarshal(call.Body[5:], &asked) != nil {
		return answer{status: http.StatusBadRequest}
	}
	args := asked.Process.Args
	var stream bytes.Buffer
	switch {
	case asked.Process.Cmd != StorageBinary || rt.mount.NoBinary:
		envelope(&stream, 2, map[string]any{"error": map[string]any{"code": "internal", "message": "fork/exec " + asked.Process.Cmd + ": no such file or directory"}})
		return stream2xx(&stream)
	case len(args) != 5 || args[0] != "mount" || args[1] != "--driver" || args[3] != "--config":
		return answer{status: http.StatusBadRequest}
	}
	envelope(&stream, 0, event("start", map[string]any{"pid": 7}))
	end := map[string]any{"exited": true, "status": "exit status 0"} // 0 is left out, as protobuf's JSON does
	if rt.mount.ExitCode != 0 {
		envelope(&stream, 0, event("data", map[string]any{"stderr": []byte(rt.mount.Stderr)}))
		end["exitCode"] = rt.mount.ExitCode
	} else if !rt.mounted(args[2], args[4], asked.Process.Envs["POD_UID"]) {
		end["exitCode"] = 2
	}
	envelope(&stream, 0, event("end", end))
	envelope(&stream, 2, map[string]any{})
	return stream2xx(&stream)
}

func (rt *Runtime) mounted(driver, config, podUID string) bool {
	raw, err := base64.StdEncoding.DecodeString(config)
	request := &csi.NodePublishVolumeRequest{}
	if err != nil || proto.Unmarshal(raw, request) != nil {
		return false
	}
	rt.mounts = append(rt.mounts, Mount{Driver: driver, Request: request, PodUID: podUID})
	return true
}

func event(name string, content any) any {
	return map[string]any{"event": map[string]any{name: content}}
}

func envelope(stream *bytes.Buffer, flags byte, content any) {
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	stream.WriteByte(flags)
	_ = binary.Write(stream, binary.BigEndian, uint32(len(raw))) // to memory
	stream.Write(raw)
}

func stream2xx(stream *bytes.Buffer) answer {
	return answer{status: http.StatusOK, body: stream.Bytes(), header: http.Header{"Content-Type": {"application/connect+json"}}}
}
