// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const (
	// startPath starts a process in the sandbox.
	startPath = "process.Process/Start"
	// storageBinary mounts volumes. It comes into the sandbox with the storage driver.
	storageBinary = "/mnt/envd/sandbox-runtime-storage"
	// maxStreamBytes bounds what is read of the output of a process. A message of more than
	// maxMessageBytes has output, and is passed over: otherwise it would be in memory until its end
	// has come.
	maxStreamBytes, maxMessageBytes = 1 << 20, 64 << 10
	// exitNotFound is the exit code of a shell that does not find a command.
	exitNotFound = 127
)

// Flags of an envelope, and the bytes before its content.
const (
	flagCompressed = 1
	flagEnd        = 2
	envelopeHead   = 5
)

// processRequest is what process.Process/Start is asked for.
type processRequest struct {
	Process processConfig `json:"process"`
}

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args"`
	Envs map[string]string `json:"envs"`
}

// processMessage is what comes back: an event of the process, or at the end an error.
type processMessage struct {
	Event struct {
		End *struct {
			ExitCode int32 `json:"exitCode"`
		} `json:"end"`
	} `json:"event"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// mountByProcess runs the binary that mounts, as root.
func (c *Client) mountByProcess(ctx context.Context, address, token string, v Volume, config string) *Error {
	content, err := json.Marshal(processRequest{processConfig{
		Cmd:  storageBinary,
		Args: []string{"mount", "--driver", v.Driver, "--config", config},
		Envs: map[string]string{"POD_UID": v.PodUID},
	}})
	if err != nil {
		return &Error{kind: unable, message: "the request to the driver cannot be encoded"}
	}
	answer, failed := c.post(ctx, address, "application/connect+json", token, envelope(content), http.Header{
		"Authorization":            {"Basic " + base64.StdEncoding.EncodeToString([]byte("root:"))},
		"Connect-Protocol-Version": {"1"},
	})
	if failed != nil {
		if failed.status == http.StatusNotFound {
			return &Error{rejected, failed.status, failed.message + " to POST /" + startPath + ": this agent-runtime cannot start processes, so it cannot mount volumes"}
		}
		return failed
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	result, err := readResult(io.LimitReader(answer.Body, maxStreamBytes))
	if err != nil {
		if ctx.Err() != nil {
			return &Error{kind: unreachable, message: storageBinary + " did not end in time"}
		}
		return &Error{kind: unreachable, message: "the agent-runtime broke off before " + storageBinary + " had ended, or its answer cannot be read"}
	}
	return result.failure()
}

func envelope(content []byte) []byte {
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(content)))
	return append(framed, content...)
}

// result is how a process ended.
type result struct {
	// missing reports whether its program does not exist, and notStarted whether it was
	// not started for another reason.
	missing, notStarted bool
	exitCode            int32
}

// readResult reads the events of a process up to its end.
func readResult(stream io.Reader) (result, error) {
	var r result
	for {
		message, last, err := readMessage(stream)
		if err != nil {
			return r, err
		}
		switch {
		case message.Error != nil:
			r.missing = strings.Contains(message.Error.Message, "no such file") || strings.Contains(message.Error.Message, "not found")
			r.notStarted = !r.missing
			return r, nil
		case message.Event.End != nil:
			r.exitCode = message.Event.End.ExitCode
			r.missing = r.exitCode == exitNotFound
			return r, nil
		case last:
			return r, io.ErrUnexpectedEOF
		}
	}
}

// readMessage reads one envelope, and reports whether it is the last.
func readMessage(stream io.Reader) (processMessage, bool, error) {
	var message processMessage
	var head [envelopeHead]byte
	if _, err := io.ReadFull(stream, head[:]); err != nil {
		return message, false, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if head[0]&flagCompressed != 0 || length > maxStreamBytes {
		return message, false, io.ErrUnexpectedEOF
	}
	if length > maxMessageBytes {
		_, err := io.CopyN(io.Discard, stream, int64(length))
		return message, head[0]&flagEnd != 0, err
	}
	var content bytes.Buffer
	if n, err := io.CopyN(&content, stream, int64(length)); err != nil || n < int64(length) {
		return message, false, io.ErrUnexpectedEOF
	}
	return message, head[0]&flagEnd != 0, json.Unmarshal(content.Bytes(), &message)
}

// failure is the error of a process that did not succeed. What the process wrote is not
// told: it may repeat what it was given, in whatever form, and errors are read by many.
func (r result) failure() *Error {
	switch {
	case r.missing:
		return &Error{kind: rejected, message: storageBinary + " is not in the sandbox: it comes with the runtime csi, which the SandboxSet has to name"}
	case r.notStarted:
		return &Error{kind: rejected, message: "the agent-runtime could not start " + storageBinary}
	case r.exitCode != 0:
		return &Error{kind: rejected, message: fmt.Sprintf("%s ended with exit code %d", storageBinary, r.exitCode)}
	}
	return nil
}
