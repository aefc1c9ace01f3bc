// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// httpError is an error with an HTTP status code.
type httpError struct {
	status int
	text   string
}

func (r *httpError) Error() string { return r.text }

func newHTTPError(status int, format string, args ...any) error {
	return &httpError{status: status, text: fmt.Sprintf(format, args...)}
}

// etagOf returns the ETag of a manifest with this content.
func etagOf(data []byte) string {
	sum := sha256.Sum256(data)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// storeManifest validates data and stores it as the named manifest. It returns an error if a pod exists in another manifest, or
// the header forbids the change.
func (h *Handler) storeManifest(header http.Header, name string, data []byte) (stored Manifest, created bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, err := h.readForChange(header, name)
	if err != nil {
		return Manifest{}, false, err
	}
	h.rescanDir()
	path := filepath.Join(h.dir, name)
	entries, cost, err := h.decodeManifest(path, data)
	if err != nil {
		return Manifest{}, false, err
	}
	if err := h.checkRoom(path, cost); err != nil {
		return Manifest{}, false, err
	}
	if err := h.writeManifest(path, data); err != nil {
		return Manifest{}, false, fmt.Errorf("manifest %s: %w", name, err)
	}
	stored = Manifest{Name: name, Pods: []*corev1.Pod{}}
	for _, e := range entries {
		stored.Pods = append(stored.Pods, h.copyWithStatus(e.pod))
	}
	return stored, old == nil, nil
}

// decodeManifest returns the pods and the size of a manifest. The error lists all its problems, one per line.
func (h *Handler) decodeManifest(path string, data []byte) (pods []entry, total cost, err error) {
	entries, errs, cost := parse(data, Origin{
		Source: File, Location: path, NodeName: h.opts.NodeName, AllowObjects: h.opts.AllowObjects, AllowTokens: h.opts.AllowTokens, Seen: time.Now(),
	})
	status := http.StatusUnprocessableEntity
	if len(errs) == 0 {
		status, errs = http.StatusConflict, h.findDuplicates(path, entries)
	}
	if len(errs) == 0 {
		return entries, cost, nil
	}
	lines := make([]string, len(errs))
	for i, e := range errs {
		lines[i] = h.errorText(e)
	}
	return nil, cost, newHTTPError(status, "%s", strings.Join(lines, "\n"))
}

// findDuplicates returns an error for each pod whose name or UID another pod already has, in another manifest or in this one.
func (h *Handler) findDuplicates(path string, entries []entry) []*Error {
	var claims []claim
	for other, m := range h.view.files {
		for i := range m.entries {
			if e := m.entries[i]; other != path && e.inSet {
				claims = append(claims, claim{entry: &e, file: other})
			}
		}
	}
	for _, e := range entries {
		e.inSet = false
		claims = append(claims, claim{entry: &e, file: path})
	}
	return resolveDuplicates(claims)[path]
}

// checkRoom returns an error if a manifest stored at path would make the directory exceed its limits. added is the cost of
// this manifest, which replaces an existing manifest at path.
func (h *Handler) checkRoom(path string, added cost) error {
	others, files := h.view.totalCost, len(h.view.files)
	if m := h.view.files[path]; m != nil {
		others, files = others.subtractCost(m.cost), files-1
	}
	limit, total := maxCost(), others.addCost(added)
	switch {
	case files >= maxFiles:
		return newHTTPError(http.StatusInsufficientStorage, "manifest %s: the directory has %d files", filepath.Base(path), files)
	case total.values > limit.values || total.bytes > limit.bytes:
		return newHTTPError(http.StatusInsufficientStorage, "manifest %s: the manifests have more than %d values or %d bytes together",
			filepath.Base(path), limit.values, limit.bytes)
	}
	return nil
}

// writeManifest writes the manifest file and syncs it to disk. It creates the directory if that does not exist.
func (h *Handler) writeManifest(path string, data []byte) error {
	if _, err := os.Stat(h.dir); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(os.MkdirAll(h.dir, 0o700), atomicfile.SyncDir(filepath.Dir(h.dir))); err != nil {
			return err
		}
	}
	// Remove the temporary file of a writer that was killed.
	if err := atomicfile.Clean(path); err != nil {
		return err
	}
	return atomicfile.WriteFile(path, data, 0o600)
}

// removeManifest removes the named manifest and syncs the directory to disk. It returns an error if the If-Match header forbids
// this.
func (h *Handler) removeManifest(request *http.Request, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, err := h.readForChange(request.Header, name)
	switch {
	case err != nil:
		return err
	case old == nil:
		return newHTTPError(http.StatusNotFound, "manifest %s: not found", name)
	}
	if err := errors.Join(os.Remove(filepath.Join(h.dir, name)), atomicfile.SyncDir(h.dir)); err != nil {
		return fmt.Errorf("manifest %s: %w", name, err)
	}
	return nil
}

// readForChange returns the content of the named manifest, or nil. It returns an error if the If-Match or If-None-Match header
// forbids a change.
func (h *Handler) readForChange(header http.Header, name string) ([]byte, error) {
	old, err := h.readManifest(name)
	if err != nil {
		return nil, err
	}
	tag := ""
	if old != nil {
		tag = etagOf(old)
	}
	if list := header.Values("If-Match"); len(list) > 0 && (old == nil || !matchesETag(list, tag)) {
		return nil, newHTTPError(http.StatusPreconditionFailed, "manifest %s: If-Match: the version differs", name)
	}
	if list := header.Values("If-None-Match"); len(list) > 0 && old != nil && matchesETag(list, tag) {
		return nil, newHTTPError(http.StatusPreconditionFailed, "manifest %s: If-None-Match: the manifest exists", name)
	}
	return old, nil
}

// matchesETag reports whether the values of an If-Match or If-None-Match header contain this tag or "*".
func matchesETag(list []string, tag string) bool {
	all := strings.Split(strings.Join(list, ","), ",")
	return slices.ContainsFunc(all, func(t string) bool { return strings.TrimSpace(t) == "*" || strings.TrimSpace(t) == tag })
}

// readManifest returns the content of the named manifest, or nil if it does not exist.
func (h *Handler) readManifest(name string) ([]byte, error) {
	path := filepath.Join(h.dir, name)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("manifest %s: %w", name, stripPath(err))
	case !info.Mode().IsRegular():
		return nil, newHTTPError(http.StatusConflict, "manifest %s: not a regular file: %s", name, info.Mode())
	}
	// readFile verifies that it opened the file of info, so a link that replaced the file is not followed.
	data, err := readFile(path, info)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("manifest %s: %w", name, stripPath(err))
	case data == nil:
		data = []byte{}
	}
	return data, nil
}
