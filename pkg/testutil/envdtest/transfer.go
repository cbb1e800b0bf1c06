// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package envdtest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// maxFile is how long a file may be.
const maxFile = 64 << 20

// signed serves who has the access token, or a URL that was signed with it for the
// operation read or write.
func (e *Envd) signed(operation string, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !e.allowed(r) && !e.hasSignature(r, operation) {
			writeError(w, http.StatusUnauthorized, "unauthenticated", "the access token and the signature are missing or wrong")
			return
		}
		serve(w, r)
	}
}

func (e *Envd) hasSignature(r *http.Request, operation string) bool {
	query := r.URL.Query()
	text := strings.Join([]string{query.Get("path"), operation, query.Get("username"), e.access.Token()}, ":")
	if until := query.Get("signature_expiration"); until != "" {
		seconds, err := strconv.ParseInt(until, 10, 64)
		if err != nil || time.Now().Unix() > seconds {
			return false
		}
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	return subtle.ConstantTimeCompare([]byte(query.Get("signature")), []byte(want)) == 1
}

// download is GET /files.
func (e *Envd) download(w http.ResponseWriter, r *http.Request) {
	name := absolute(r.URL.Query().Get("path"))
	content, ok := e.Files.Read(name)
	if !ok {
		writeJSON(w, http.StatusNotFound, map[string]any{"code": http.StatusNotFound, "message": "path '" + name + "' does not exist"})
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content) // or the client is gone
}

// upload is POST /files: parts named file, each with its path as file name where the query
// has none, or the content itself.
func (e *Envd) upload(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxFile)
	target := r.URL.Query().Get("path")
	var written []map[string]any
	write := func(name string, from io.Reader) error {
		content, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		if name == "" || !e.Files.Write(name, content) {
			return errors.New("cannot write to path '" + name + "'")
		}
		name = absolute(name)
		written = append(written, map[string]any{"path": name, "name": path.Base(name), "type": "file"})
		return nil
	}
	err := uploads(r, target, write)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"code": http.StatusBadRequest, "message": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, written)
}

func uploads(r *http.Request, target string, write func(string, io.Reader) error) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "application/octet-stream" {
		return write(target, r.Body)
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return err
	}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if part.FormName() != "file" {
			continue
		}
		name := target
		if name == "" {
			// Part.FileName has the last element of the path only.
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if err != nil {
				return err
			}
			name = params["filename"]
		}
		if err := write(name, part); err != nil {
			return err
		}
	}
}
