// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandlot-io/sandlot/pkg/runtimeserver/users"
)

// maxParts is how many files one request uploads at most.
const maxParts = 10_000

// transferError is an error with its status of HTTP.
type transferError struct {
	status int
	err    error
}

func (e *transferError) Error() string { return e.err.Error() }
func (e *transferError) Unwrap() error { return e.err }

func refuse(status int, format string, args ...any) error {
	return &transferError{status, fmt.Errorf(format, args...)}
}

// written is an uploaded file.
type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// caller returns the user of a request of /files and the absolute form of its path.
func (s *Service) caller(r *http.Request) (u users.User, folder string, err error) {
	name, folder := s.access.Defaults()
	u, err = users.Lookup(cmp.Or(r.URL.Query().Get("username"), users.Named(r.Header), name, users.Default))
	switch {
	case errors.Is(err, users.ErrUnknown):
		return u, "", &transferError{http.StatusUnauthorized, err}
	case errors.Is(err, users.ErrNotAllowed):
		return u, "", &transferError{http.StatusForbidden, err}
	}
	return u, folder, err
}

// Download is GET /files: the content of a file.
func (s *Service) Download(w http.ResponseWriter, r *http.Request) {
	if err := s.download(w, r); err != nil {
		fail(w, err)
	}
}

func (s *Service) download(w http.ResponseWriter, r *http.Request) error {
	u, folder, err := s.caller(r)
	if err != nil {
		return err
	}
	path, err := u.Absolute(r.URL.Query().Get("path"), folder)
	if err != nil {
		return &transferError{http.StatusBadRequest, err}
	}
	file, info, err := open(r.Context(), u, path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(path)}))
	if info.Size() == 0 {
		_, err := io.Copy(w, file) // a file of the kernel has content all the same
		return err
	}
	http.ServeContent(w, r, "", info.ModTime(), file)
	return nil
}

// open opens a regular file with the rights of the user. It never waits for what is none,
// such as a named pipe.
func open(ctx context.Context, u users.User, path string, flags int) (*os.File, os.FileInfo, error) {
	var file *os.File
	err := u.Do(ctx, func() error {
		var err error
		if flags&os.O_CREATE != 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
		}
		file, err = os.OpenFile(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0o666)
		return err
	})
	if errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV) {
		return nil, nil, refuse(http.StatusBadRequest, "path %q is no regular file", path)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = refuse(http.StatusBadRequest, "path %q is a directory", path)
	case !info.Mode().IsRegular():
		err = refuse(http.StatusBadRequest, "path %q is no regular file", path)
	case isOurs(file):
		err = refuse(http.StatusForbidden, "path %q leads into the memory or the settings of the runtime", path)
	}
	if err != nil {
		_ = file.Close() // it was not used
		return nil, nil, err
	}
	return file, info, nil
}

// isOurs reports whether a file is that of this process in /proc, by whatever links, or that of one of its threads,
// which have the same files. A process may open its own, so the rights of the user do not keep it from there.
func isOurs(file *os.File) bool {
	fd := int(file.Fd())
	var system unix.Statfs_t
	if err := unix.Fstatfs(fd, &system); err != nil {
		return true
	}
	if system.Type != unix.PROC_SUPER_MAGIC {
		return false
	}
	path, ok := pathInProc(fd)
	if !ok {
		return true
	}
	thread, _, _ := strings.Cut(path, "/")
	if _, err := strconv.Atoi(thread); err != nil {
		return false
	}
	_, err := os.Stat("/proc/self/task/" + thread)
	return err == nil
}

// pathInProc returns the path of an open file in its procfs. ok is false if the mount is not one of this process:
// processes of the user may mount anything anywhere in a mount namespace of their own, so that the path there says
// nothing.
func pathInProc(fd int) (path string, ok bool) {
	// A procfs of another PID namespace has other numbers, and a device of its own.
	var own, its unix.Stat_t
	if unix.Stat("/proc", &own) != nil || unix.Fstat(fd, &its) != nil || own.Dev != its.Dev {
		return "", false
	}
	var stat unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat); err != nil || stat.Mask&unix.STATX_MNT_ID == 0 {
		return "", false
	}
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	id := strconv.FormatUint(stat.Mnt_id, 10)
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[0] == id {
			root, mountPoint := fields[3], fields[4]
			below, ok := strings.CutPrefix(link, mountPoint)
			return strings.TrimPrefix(filepath.Join(root, below), "/"), ok
		}
	}
	return "", false
}

// Upload is POST /files: parts named file, each with its path as file name where the query
// has none, or the content itself.
func (s *Service) Upload(w http.ResponseWriter, r *http.Request) {
	all, err := s.upload(r)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // or the client is gone
}

func (s *Service) upload(r *http.Request) ([]written, error) {
	u, folder, err := s.caller(r)
	if err != nil {
		return nil, err
	}
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "decompressing the body: %w", err)
		}
		r.Body = body
	default:
		return nil, refuse(http.StatusBadRequest, "unsupported content encoding %q: use gzip, or none", encoding)
	}
	all := []written{}
	write := func(name string, from io.Reader) error {
		if name == "" {
			return refuse(http.StatusBadRequest, "the request names no path")
		}
		path, err := u.Absolute(name, folder)
		if err != nil {
			return &transferError{http.StatusBadRequest, err}
		}
		if err := save(r.Context(), u, path, from); err != nil {
			return err
		}
		all = append(all, written{filepath.Base(path), path, "file"})
		return nil
	}
	return all, receive(r, write)
}

// save writes a file.
func save(ctx context.Context, u users.User, path string, from io.Reader) error {
	file, _, err := open(ctx, u, path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{file}, readErrors{from})
	return errors.Join(err, file.Close())
}

// readErrors marks errors of reading a body as those of the request.
type readErrors struct{ io.Reader }

func (r readErrors) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = refuse(http.StatusBadRequest, "reading the body: %w", err)
	}
	return n, err
}

// receive calls write for each file of a request.
func receive(r *http.Request, write func(string, io.Reader) error) error {
	target := r.URL.Query().Get("path")
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "application/octet-stream" {
		return write(target, r.Body)
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return refuse(http.StatusBadRequest, "the body must be multipart/form-data or application/octet-stream: %w", err)
	}
	for count := 0; ; count++ {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return refuse(http.StatusBadRequest, "reading the parts of the body: %w", err)
		}
		if count >= maxParts {
			return refuse(http.StatusBadRequest, "more than %d files in one request", maxParts)
		}
		if part.FormName() != "file" {
			continue
		}
		name := target
		if name == "" {
			// Part.FileName has the last element of the path only.
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if err != nil {
				return refuse(http.StatusBadRequest, "reading the parts of the body: %w", err)
			}
			name = params["filename"]
		}
		if err := write(name, part); err != nil {
			return err
		}
	}
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var known *transferError
	switch {
	case errors.As(err, &known):
		status = known.status
	case errors.Is(err, os.ErrNotExist):
		status = http.StatusNotFound
	case errors.Is(err, os.ErrPermission), errors.Is(err, users.ErrNotAllowed), errors.Is(err, syscall.EROFS):
		status = http.StatusForbidden
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		status = http.StatusInsufficientStorage
	case errors.Is(err, users.ErrBusy):
		status = http.StatusServiceUnavailable
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP):
		status = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": status, "message": err.Error()}) // or the client is gone
}
